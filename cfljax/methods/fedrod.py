"""FedRoD (Chen and Chao 2022) with a linear personal head: a global model that is trained by a
balanced loss, and for each client a second head, whose outputs are added.

On each batch a participant takes two gradients at the same parameters: of the balanced softmax
loss, for the global model, and of the plain loss of both heads' summed outputs, for the personal
head alone. The balanced loss adds log n_c to the output of class c, n_c being how many of the
client's training samples have it in this round. Clients are scored with the sum; the accuracy of
the global model is the diagnostic `accuracy_global`.

A client that was not drawn yet, a newcomer too, has the first personal head.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.models.flat import head_of, part_of
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import (
    AVERAGES,
    Ask,
    AtHome,
    AtHomeState,
    GradientAt,
    OwnSteps,
    Solver,
    StepRule,
    count_labels,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="FedRoD",
    family="personal",
    authors="Chen and Chao",
    year=2022,
    paper="On bridging generic and personalized federated learning for image classification",
    venue="ICLR",
    link="https://arxiv.org/abs/2107.00778",
)
READINGS = (
    Reading(
        "Personal head",
        paper="linear, or made by a network from n_c",
        here="linear",
    ),
    Reading(
        "Start of the personal head",
        paper="in PFLlib the initial head of the global model",
    ),
    Reading(
        "Missing class",
        paper="in PFLlib log 0",
        here="log 10⁻³⁰",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class FedRoD(AtHome):
    """FedRoD: a global model by a balanced loss, and a personal head that is added to its own.

    A participant gets the global model f32[d]. On each batch the global model follows the balanced
    softmax loss, whose outputs have log n_c added for the client's n_c samples of class c, f32[M];
    the personal head, kept in f32[C, d + M] beside log n_c, follows the plain loss of both heads'
    summed outputs. `average` says how the global models are averaged.
    """

    own_steps = True
    publishes_one_sum_per_round = True
    counts_labels = "counts samples by their label, so they need one class each"

    average: str = option("samples", "weights of the participants", choices=AVERAGES)

    def first_home(self, w: Array, solver: Solver, federation: Federation, hyper: Hyper) -> Array:
        """Return f32[d + M]: the personal heads, and room for log n_c, which `receive` fills."""
        head = jnp.where(part_of(solver.model, head_of(solver.model)), w, 0.0)
        return jnp.append(head, jnp.zeros(federation.classes))

    def receive(self, ask: Ask, state: AtHomeState) -> Array:
        """Count the labels, which a drift may have changed."""
        count = count_labels(ask.solver, ask.federation, ask.cohort)
        prior = jnp.log(jnp.maximum(count, 1e-30))
        heads = state.rows[ask.cohort.ids, : state.w.shape[1]]
        return jnp.concatenate([heads, prior], axis=1)

    def personal(self, state: AtHomeState) -> Array:
        """Return the global model with the sum of both heads."""
        return state.w + state.rows[:, : state.w.shape[1]]

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps on w and the personal head. The report has the loss of both heads' sum."""
        move = make_stepper(rule, LocalStep.of(hyper), ())
        head = head_of(model)
        bias = np.flatnonzero(part_of(model, f"{head}/bias"))
        is_head = jax.tree.map(
            lambda leaf: leaf > 0, model.unravel(jnp.asarray(part_of(model, head), jnp.float32))
        )

        def begin(start: Tree, home: Array) -> Carry:
            if home.size != model.size + bias.size:
                raise SpecError(
                    f'model "{model.name}": method.fedrod needs an output for each class'
                )
            personal_head, log_counts = jnp.split(home, [model.size])
            # Added to the head's biases, log n_c is added to the outputs
            prior = model.unravel(jnp.zeros(model.size).at[bias].set(log_counts))
            personal = start_at(rule, model.unravel(personal_head), None)
            return Carry(start_at(rule, start, None), personal, prior)

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            w, personal, prior = at
            by_w = gradient(jax.tree.map(jnp.add, w.params, prior))
            by_personal = gradient(jax.tree.map(jnp.add, w.params, personal.params))
            after = Carry(move(w, by_w), move(personal, by_personal, is_head), prior)
            return after, by_personal.loss

        def end(at: Carry) -> tuple[Tree, Array]:
            log_counts = model.ravel(at.prior)[bias]
            return at.w.params, jnp.append(model.ravel(at.personal.params), log_counts)

        return OwnSteps(begin, step, end)


class Carry(NamedTuple):
    """What the steps of a client carry."""

    # The global model
    w: Position
    # The personal head, in a model whose other numbers are 0
    personal: Position
    # log n_c in the head's biases, in such a model
    prior: Tree
