"""FedALA (Zhang et al. 2023): FedAvg of a global model w, whose clients begin each local training
at w with a head that is mixed of w's head and their own, number by number, with learned weights.
This beginning is scored; the accuracy of w is `accuracy_global`.

A participant has the model v that it last trained, and the weights W in [0, 1] of its head, 1 at
first. When w arrives, it learns W on a share of its samples: on each batch W ← W − eta ∇f(m) ⊙ (w −
v), clipped to [0, 1]. Here m has the body of w and the head v + (w − v) ⊙ W. Then it trains from m,
and sends what becomes of it.

A newcomer, like any client that was not drawn yet, is scored with w.
"""

from __future__ import annotations

import dataclasses

from cfljax import keys
from cfljax.lazy import jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.models.flat import head_of, part_of
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import (
    AVERAGES,
    Ask,
    AtHome,
    GradientAt,
    Kept,
    OwnSteps,
    Solver,
    StepRule,
    Work,
    jobs_from,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="FedALA",
    family="personal",
    authors="Zhang et al.",
    year=2023,
    paper="FedALA: adaptive local aggregation for personalized federated learning",
    venue="AAAI",
    link="https://arxiv.org/abs/2212.01197",
)
READINGS = (
    Reading(
        "Mixed layers",
        paper="the p last; p = 1 in its comparisons",
        here="the last dense layer",
    ),
    Reading(
        "First learning of W",
        paper="until W has converged; its program: until the losses of ten passes are alike",
        here="a fixed number of passes",
        option="first_epochs",
    ),
    Reading(
        "Samples",
        paper="a random part of them",
        here="the first batches of a random order, in each pass another one",
        option="share",
    ),
    Reading(
        "Client that is not drawn",
        paper="keeps v and W; its program lets all clients learn W in each round, and puts the "
        "mixture in the place of v",
        here="it keeps both",
    ),
    Reading(
        "Client that trains for the first time",
        paper="all take part in the first round, from the first model",
        here="from w",
    ),
    Reading(
        "Scored model",
        paper="the beginning; its program lets all clients learn W in each round",
        here="the beginning by the W of a client's last round",
    ),
    BY_SAMPLES,
)

# What the steps of training carry: the model; and v, W, and how often the client has trained
Carry = tuple[Position, Array]


@dataclasses.dataclass(frozen=True)
class FedALA(AtHome):
    """FedALA: FedAvg whose clients begin with a mixture of the global head and their own.

    A client keeps v f32[d] and the weights W f32[d], of which the head's are used. When w f32[d]
    arrives it takes steps of length `eta` on W over `share` of its samples: `first_epochs` passes
    when it does so for the first time, then one pass a round. It trains from v + (w − v) ⊙ W, and
    `average` says how the results are averaged.
    """

    own_steps, vectors_kept = True, 2

    eta: float = option(1.0, "learning rate of the weights", low=0.0, traced=True)
    share: float = option(
        0.8,
        "share of its samples on which a client learns the weights",
        above=0.0,
        high=1.0,
        traced=True,
    )
    first_epochs: int = option(
        10, "passes over these samples when it does so for the first time; later one", low=1
    )
    average: str = option("samples", "weights of the participants", choices=AVERAGES)

    def first_home(self, w: Array, solver: Solver, federation: Federation, hyper: Hyper) -> Array:
        """v, W, and how often the client has trained."""
        return jnp.concatenate([w, jnp.ones_like(w), jnp.zeros(1)])

    def personal(self, state: Kept) -> Array:
        """Return the beginnings of local training."""
        return mixture(state.w, state.home)

    def receive(self, ask: Ask, state: Kept) -> Array:
        """Learn W, but not before the first training."""
        home = state.home[ask.cohort.ids]
        cohort = ask.cohort
        share = ask.hyper["share"] * jnp.where(home[:, -1] == 1, 1.0, 1 / self.first_epochs)
        drawn = cohort._replace(mask=cohort.mask & (home[:, -1] > 0), work=share)
        jobs = jobs_from(drawn, state.w, jnp.zeros_like(cohort.ids), home=home)
        solver = ask.solver.with_work(Work(self.first_epochs, None, ask.solver.work.batch))
        learner = solver.with_own_steps(lambda hyper, _: self.learn(solver.model, hyper))
        learned = learner.train(keys.fold(ask.key, "weights"), ask.federation, jobs, ask.hyper).home
        assert learned is not None
        return learned

    def learn(self, model: Model, hyper: Hyper) -> OwnSteps:
        """W ← W − eta ∇f(m) ⊙ (w − v)."""
        head = part_of(model, head_of(model))
        d = model.size

        def step(
            gradient: GradientAt, at: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array], Array]:
            w, home = at
            found = gradient(model.unravel(mixture(w, home)))
            move = jnp.where(head, hyper["eta"] * model.ravel(found.grads) * (w - home[:d]), 0.0)
            return (
                w,
                home.at[d : 2 * d].set(jnp.clip(home[d : 2 * d] - move, 0.0, 1.0)),
            ), found.loss

        return OwnSteps(
            lambda start, home: (model.ravel(start), home),
            step,
            lambda at: (model.unravel(at[0]), at[1]),
        )

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """From the mixture."""
        move = make_stepper(rule, LocalStep.of(hyper), ())
        d = model.size
        first = lambda start, home: model.unravel(mixture(model.ravel(start), home))  # noqa: E731

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            found = gradient(at[0].params)
            return (move(at[0], found), at[1]), found.loss

        def end(at: Carry) -> tuple[Tree, Array]:
            return at[0].params, jnp.concatenate(
                [model.ravel(at[0].params), at[1][d:-1], at[1][-1:] + 1]
            )

        return OwnSteps(
            lambda start, home: (start_at(rule, first(start, home), None), home), step, end
        )


def mixture(w: Array, home: Array) -> Array:
    """f32[..., d]: v + (w − v) ⊙ W."""
    d = w.shape[-1]
    return w + (1 - home[..., d : 2 * d]) * (home[..., :d] - w)
