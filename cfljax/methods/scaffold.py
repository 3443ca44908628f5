"""SCAFFOLD (Karimireddy et al. 2020): FedAvg whose clients add c − c_i to each gradient. The
control variate c_i is a client's mean gradient when it last trained, and c the mean of the c_i of
all clients: so its steps go where all clients together want to go.

Beginning at the global model x, on each batch y ← y − η (∇f_i(y) − c_i + c). Then c_i⁺ replaces
c_i, and the server sets x ← x + server_lr · mean of (y − x) and c ← c + (1/C) · sum of (c_i⁺ − c_i)
over the participants. C counts the clients that train in some round. All control variates are 0 at
first, so that the first round is FedAvg's.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.lazy import jax, jnp
from cfljax.local.train import Gradient, Position, make_stepper, start_at
from cfljax.round.about import About, Reading
from cfljax.round.recipes import Controlled, GradientAt, OwnSteps, StepRule, option
from cfljax.types import Array, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="SCAFFOLD",
    family="global",
    authors="Karimireddy et al.",
    year=2020,
    paper="SCAFFOLD: stochastic controlled averaging for federated learning",
    venue="ICML",
    link="https://arxiv.org/abs/1910.06378",
    models="2 down, 2 up",
    communication="one model and c down, one update and the change of c_i up",
)
READINGS = (
    Reading(
        "The new c_i",
        paper="the gradient at x (I), or c_i − c + (x − y) / (steps · η) (II)",
        here="II, as the mean of the gradients at the client's steps, which is the same for "
        "plain SGD",
    ),
    Reading(
        "Optimiser",
        paper="SGD",
        here="the run's, with its momentum; it gets corrected gradients",
    ),
    Reading(
        "Weights",
        paper="uniform, of x and of c",
        option="average",
    ),
    Reading(
        "Compression",
        paper="none",
        here="of both vectors; a client adds to its c_i what the server received",
    ),
    Reading(
        "Privacy",
        paper="none",
        here="the change of c_i is clipped, and its sum gets noise",
    ),
)

"""What the steps of a client carry: where they are, c − c_i, the sum of the gradients without it,
and their number f32[]."""


@dataclasses.dataclass(frozen=True)
class Scaffold(Controlled):
    """SCAFFOLD: FedAvg whose steps are corrected by control variates.

    A participant gets the global model x and c, f32[d] each, and steps y ← y − η (∇f_i(y) − c_i +
    c). Its new c_i, a row of f32[C, d], is its mean gradient. The server sets x ← x + server_lr ·
    mean of (y − x), and c to the mean of all c_i. `server_lr` is the server's step, `average` has
    the weights of both means.
    """

    server_lr: float = option(
        1.0, "server learning rate, along the mean update", low=0.0, traced=True
    )
    average: str = option("uniform", "weights of the clients", choices=("samples", "uniform"))

    def move(self, models: Array, mean: Array, control: Array, hyper: Hyper) -> Array:
        """Return f32[1, d]: x + server_lr · mean of (y − x)."""
        return models + hyper["server_lr"] * mean

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return the steps y ← y − η (∇f_i(y) − c_i + c). The new c_i is the mean of the
        gradients."""
        numbers = LocalStep.of(hyper)
        decay = numbers.weight_decay
        # Weight decay is a part of f_i, so it is in c_i, too: not left to the stepper
        move = make_stepper(rule, numbers._replace(weight_decay=None), ())

        def begin(start: Tree, home: Array) -> Carry:
            return Carry(
                position=start_at(rule, start, None),
                correction=model.unravel(home),
                total=jax.tree.map(jnp.zeros_like, start),
                steps=jnp.float32(0),
            )

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            params = at.position.params
            loss, samples, grads = gradient(params)
            if decay is not None:
                grads = jax.tree.map(lambda g, w: g + decay * w, grads, params)
            corrected = jax.tree.map(jnp.add, grads, at.correction)
            return Carry(
                position=move(at.position, Gradient(loss, samples, corrected)),
                correction=at.correction,
                total=jax.tree.map(jnp.add, at.total, grads),
                steps=at.steps + 1,
            ), loss

        def end(at: Carry) -> tuple[Tree, Array]:
            return at.position.params, model.ravel(at.total) / jnp.maximum(at.steps, 1.0)

        return OwnSteps(begin, step, end)


class Carry(NamedTuple):
    """What the steps of a client carry."""

    # y
    position: Position
    # c − c_i
    correction: Tree
    # The sum of the gradients
    total: Tree
    # f32[]: the number of steps
    steps: Array
