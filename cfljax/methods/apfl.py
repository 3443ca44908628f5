"""APFL (Deng et al. 2020): FedAvg on a global model w, and for each client a personal model v_i
that is trained in a mixture with it. The mixture α_i v_i + (1 − α_i) w is scored; the accuracy of w
is the diagnostic `accuracy_global`.

On each batch w ← w − η ∇f(w) and v_i ← v_i − η α_i ∇f(m), where m = α_i v_i + (1 − α_i) w is the
mixture before the step and α_i ∇f(m) its gradient by v_i. On the first batch of a round also α_i ←
α_i − η ⟨v_i − w, ∇f(m)⟩. So with a fixed alpha = 0 it is FedAvg, and with a fixed alpha = 1 v_i is
trained alone. Momentum, weight decay and the optimiser of the run move both w and v_i.

A newcomer, like any client that was not drawn yet, has no v_i and is scored with w.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cfljax.lazy import jax, jnp
from cfljax.local.train import Gradient, Position, make_stepper, start_at
from cfljax.round.about import About, Reading
from cfljax.round.recipes import AtHome, AtHomeState, GradientAt, OwnSteps, Solver, StepRule, option
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Quantity, Tree

ABOUT = About(
    title="APFL",
    family="personal",
    authors="Deng et al.",
    year=2020,
    paper="Adaptive personalized federated learning",
    venue="arXiv",
    link="https://arxiv.org/abs/2003.13461",
)
READINGS = (
    Reading(
        "α_i",
        paper="fixed, or by its gradient",
        here="by its gradient, at the run's learning rate, within [0, 1], once a round, right "
        "after w has arrived. With each batch it would tend to 0",
        option="adapt",
    ),
    Reading(
        "Scored mixture",
        paper="with the client's own w_i after its training",
        here="with the global model, which a client gets before it trains again",
    ),
    Reading(
        "Order and mixture",
        paper="as above; its program (FedTorch) takes v_i's gradient after the step of w, mixes "
        "outputs, and adds 0.02 α_i to the gradient of α_i",
        here="as above",
    ),
    Reading(
        "Weights of the global mean",
        paper="uniform",
        option="average",
    ),
)

# What steps carry: w, v_i, α_i f32[], and whether the next is the first, bool[]
Carry = tuple[Position, Position, Array, Array]


@dataclasses.dataclass(frozen=True)
class APFL(AtHome):
    """APFL: FedAvg, and personalized models mixed with its model.

    A participant gets w f32[d], and has v_i f32[d] and α_i f32[] at home. On each batch it takes a
    step of w against ∇f(w), and one of v_i against α_i ∇f(α_i v_i + (1 − α_i) w). `alpha` is the
    first α_i, `adapt` says whether α_i follows its own gradient once a round, and `average` how the
    w are averaged.
    """

    diagnostics = {
        "alpha": Quantity("mean share of the personal model in the mixture", "share"),
    }
    own_steps = True
    publishes_one_sum_per_round = True

    alpha: float = option(
        0.5,
        "share of the personal model in the mixture, at first",
        low=0.0,
        high=1.0,
        traced=True,
        search=(0.25, 0.5, 0.75),
    )
    adapt: str = option(
        "round", "when a client's share follows its gradient", choices=("round", "never")
    )
    average: str = option("uniform", "weights of the participants", choices=("samples", "uniform"))

    def first_home(self, w: Array, solver: Solver, federation: Federation, hyper: Hyper) -> Array:
        """Return what a client begins with at home: v_i, at first w_0, and α_i."""
        return jnp.append(w, hyper["alpha"])

    def personal(self, state: AtHomeState) -> Array:
        """Return the mixture with the global model."""
        share = jnp.where(state.drawn, state.rows[:, -1], 0.0)[:, None]
        return share * state.rows[:, :-1] + (1 - share) * state.w

    def compute_diagnostics(
        self, w: Array, home: Array, mean: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """Return the mean of the α_i, the shares of the personal models in the mixtures."""
        return {"alpha": mean(home[:, -1])}

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps on w by its own loss, and on v_i and α_i by the mixture's."""
        numbers = LocalStep.of(hyper)
        move = make_stepper(rule, numbers, ())

        def begin(start: Tree, home: Array) -> Carry:
            return (
                start_at(rule, start, None),
                start_at(rule, model.unravel(home[:-1]), None),
                home[-1],
                jnp.bool_(True),
            )

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            w, v, alpha, fresh = at
            on_w = gradient(w.params)
            mixture = jax.tree.map(
                lambda own, shared: alpha * own + (1 - alpha) * shared, v.params, w.params
            )
            loss, count, grads = gradient(mixture)
            new = alpha
            if self.adapt != "never":
                slopes = jax.tree.map(
                    lambda own, shared, g: jnp.sum((own - shared) * g), v.params, w.params, grads
                )
                followed = jnp.clip(alpha - numbers.lr * sum(jax.tree.leaves(slopes)), 0.0, 1.0)
                new = jnp.where(fresh, followed, alpha)
            by_v = Gradient(loss, count, jax.tree.map(lambda g: alpha * g, grads))
            return (move(w, on_w), move(v, by_v), new, jnp.bool_(False)), on_w.loss

        def end(at: Carry) -> tuple[Tree, Array]:
            return at[0].params, jnp.append(model.ravel(at[1].params), at[2])

        return OwnSteps(begin, step, end)
