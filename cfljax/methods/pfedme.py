"""pFedMe (Dinh et al. 2020): each client's personal model θ_i minimises f_i(θ) + lam/2 · ‖θ − w‖²
for the global model w, which moves towards the personal ones. θ_i is scored; the accuracy of w is
the diagnostic `accuracy_global`.

A participant sets w_i = θ_i = w. On each batch it takes `inner_steps` steps θ_i ← θ_i − η (∇f(θ_i)
+ lam (θ_i − w_i)) with the learning rate η of the run, and then w_i ← w_i − eta · lam (w_i − θ_i).
The server sets w ← (1 − beta) w + beta · mean of the w_i.

A newcomer, like any client that was not drawn yet, has no θ_i and is scored with w.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from cfljax.lazy import jax, jnp
from cfljax.round.about import UNIFORM_UNLIKE_PROGRAM, About, Reading
from cfljax.round.recipes import AtHome, GradientAt, OwnSteps, StepRule, option
from cfljax.types import Array, Hyper, Model, Quantity, Tree

ABOUT = About(
    title="pFedMe",
    family="personal",
    authors="Dinh et al.",
    year=2020,
    paper="Personalized federated learning with Moreau envelopes",
    venue="NeurIPS",
    link="https://arxiv.org/abs/2006.08848",
)
READINGS = (
    Reading(
        "The minimum",
        paper="θ_i to an accuracy ν",
        here="a fixed number of steps of gradient descent",
        option="inner_steps",
    ),
    Reading(
        "Start of θ_i",
        paper="open",
        here="at w when the client is drawn, then at the θ_i of the batch before",
    ),
    Reading(
        "Who trains",
        paper="all clients in each round; the server averages the drawn ones",
        here="drawn clients",
    ),
    UNIFORM_UNLIKE_PROGRAM,
    Reading(
        "Further terms of a step",
        paper="none; its program adds 0.001 · θ_i to the gradient",
        here="none, and `train.optimizer`, `momentum` and `weight_decay` are refused",
    ),
    Reading(
        "Scored model",
        paper="θ_i; its program scores w_i, which has overwritten θ_i",
        here="θ_i",
    ),
)


@dataclasses.dataclass(frozen=True)
class PFedMe(AtHome):
    """pFedMe: personalized models near a global one, which moves towards them.

    A participant sets θ_i = w_i = w f32[d]. On each batch it takes `inner_steps` steps θ_i ← θ_i −
    η (∇f(θ_i) + lam (θ_i − w_i)), then w_i ← w_i − eta · lam (w_i − θ_i). The server sets w ← (1 −
    beta) w + beta · mean of the w_i, by `average`. The θ_i, f32[C, d], stay with their clients.
    """

    diagnostics = {
        "personal_distance": Quantity("mean distance of personal models from the global one"),
    }
    own_steps = True
    searches_lr = False
    publishes_one_sum_per_round = True

    lam: float = option(
        15.0,
        "strength of the pull of personal models to the global one",
        low=0.0,
        traced=True,
        search=(1.0, 15.0, "log"),
    )
    inner_steps: int = option(5, "steps of a personal model on each batch", low=1)
    # θ_i is close to w_i − ∇f / lam, so that w_i moves by eta ∇f: this is the rate of the method
    eta: float = option(
        0.005,
        "step of w_i to the personal model, times lam",
        low=0.0,
        traced=True,
        search=(0.005, 0.5, "log"),
    )
    beta: float = option(
        1.0, "step of the global model to the mean of the w_i", low=0.0, traced=True
    )
    average: str = option("uniform", "weights of the participants", choices=("samples", "uniform"))

    @property
    def without(self) -> dict[str, str]:
        """Refuse an optimiser, as local training is the method's own gradient descent."""
        return super().without | dict.fromkeys(
            ("optimizer", "momentum", "weight_decay"), "its steps are its own"
        )

    def move(self, w: Array, mean: Array, hyper: Hyper) -> Array:
        """Return f32[1, d]: (1 − beta) w + beta · mean."""
        return w + hyper["beta"] * (mean - w)

    def compute_diagnostics(
        self, w: Array, home: Array, mean: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """Return how far personal models are from the global one."""
        return {"personal_distance": mean(jnp.linalg.norm(home - w, axis=1))}

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps on θ_i and w_i. The loss for the report is θ_i's when the batch arrives."""
        lr = hyper["lr"]
        lam = hyper["lam"]
        eta = hyper["eta"]

        def begin(start: Tree, _: Array) -> Carry:
            return Carry(start, start)

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            w = at.w

            def inner(i: Array, now: tuple[Tree, Array]) -> tuple[Tree, Array]:
                theta, first_loss = now
                loss, _, grads = gradient(theta)
                theta = jax.tree.map(lambda t, g, w: t - lr * (g + lam * (t - w)), theta, grads, w)
                return theta, jnp.where(i == 0, loss, first_loss)

            theta, loss = jax.lax.fori_loop(0, self.inner_steps, inner, (at.theta, jnp.float32(0)))
            w = jax.tree.map(lambda w, t: w - eta * lam * (w - t), w, theta)
            return Carry(theta, w), loss

        def end(at: Carry) -> tuple[Tree, Array]:
            return at.w, model.ravel(at.theta)

        return OwnSteps(begin, step, end)


class Carry(NamedTuple):
    """What the steps of a client carry."""

    # θ_i
    theta: Tree
    # w_i
    w: Tree
