"""FedProto (Tan et al. 2022): each client has a model of its own, which it does not send. Clients
share prototypes: for each class the mean features of its samples, to which all pull the features of
their own samples.

A client trains by the loss ℓ + lam · d, where d is the mean squared difference between the features
of a sample and the global prototype of its class. It sends its own prototypes after training; the
global one is the mean of the participants' prototypes. The model with its own head is scored.
`accuracy_prototypes` scores the class whose global prototype is nearest.

A client that was not drawn yet, a newcomer too, is scored with the first model.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.local.train import Position, Samples, make_stepper, start_at
from cfljax.models.features import with_features
from cfljax.models.flat import head_of, part_of
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    Exchanged,
    GradientAt,
    OwnModels,
    OwnSteps,
    Peers,
    StepRule,
    jobs_from,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Quantity

ABOUT = About(
    title="FedProto",
    family="personal",
    authors="Tan et al.",
    year=2022,
    paper="FedProto: federated prototype learning across heterogeneous clients",
    venue="AAAI",
    link="https://arxiv.org/abs/2105.00243",
    models="prototypes down and up",
    communication="the known prototypes down, the prototypes of its classes up",
)
READINGS = (
    Reading(
        "Pull",
        paper="of a client's prototype of a class to the global one; its program pulls each "
        "sample's features",
        here="as its program",
    ),
    Reading(
        "Prototypes that are sent",
        paper="of all samples, after training; its program takes features from its steps",
        here="as in the paper",
    ),
    Reading(
        "Weights of the mean",
        paper="by samples, and once more divided by the number of clients; its program's are equal",
        here="equal",
    ),
    Reading(
        "Class that no participant has",
        paper="all clients take part",
        here="it keeps its last global prototype",
    ),
    Reading(
        "Scored model",
        paper="the nearest prototype; its program scores the head, too",
        here="the head",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedProto(Peers):
    """FedProto: a model for each client, whose features are pulled to global prototypes of the
    classes.

    A participant trains its own model, a row of f32[C, d], by ℓ + lam · d, where d is the mean
    squared difference between the features of a sample and the global prototype of its class, a row
    of f32[M, width]. It sends the mean features of each of its classes, and the server averages
    them over the participants. `lam` is the strength of the pull.
    """

    diagnostics = {
        "accuracy_prototypes": Quantity("accuracy by the nearest prototype", "share"),
    }
    sends, own_steps = False, True
    counts_labels = "has a prototype for each label, and here samples have several"

    lam: float = option(1.0, "strength of the pull to the prototypes", low=0.0, traced=True)

    @property
    def without(self) -> dict[str, str]:
        """What is for updates."""
        return super().without | dict.fromkeys(
            ("privacy", "compress", "attack", "robust"), "it sends prototypes, not updates"
        )

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """No prototypes: a row of zeros for each class, and 0 in its end, where others have the
        number of clients that it is of."""
        return jnp.zeros(head_rows(model, federation.classes).size)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """By the loss with the pull."""
        move = make_stepper(rule, LocalStep.of(hyper), ())

        def step(
            gradient: GradientAt, at: tuple[Position, Array]
        ) -> tuple[tuple[Position, Array], Array]:
            found = gradient(at[0].params, of=pulled(model, at[1], hyper["lam"]))
            return (move(at[0], found), at[1]), found.loss

        return OwnSteps(
            lambda start, home: (start_at(rule, start, None), home),
            step,
            lambda at: (at[0].params, at[1]),
        )

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> Exchanged:
        """Average the participants' prototypes; those whose features are not finite have none."""
        assert before.shared is not None
        old = before.shared.reshape(ask.federation.classes, -1)
        sums, count, _ = sum_features(ask, after.own[ask.cohort.ids])
        there = (count > 0) & jnp.isfinite(sums).all(axis=2)
        number, width = there.sum(axis=0)[:, None], sums.shape[2]
        total = jnp.sum(
            jnp.where(there[:, :, None], sums / jnp.maximum(count, 1.0)[:, :, None], 0.0), axis=0
        )
        new = jnp.where(
            number > 0, jnp.concatenate([total / jnp.maximum(number, 1), number], 1), old
        )
        down, up = (
            width * jnp.sum(old[:, -1] > 0) * jnp.sum(ask.cohort.mask),
            width * jnp.sum(there),
        )
        return after._replace(shared=new.ravel()), down, up

    def also(self, model: Model, state: OwnModels) -> dict[str, Array]:
        """Models whose head finds the nearest prototype c: argmin ‖z − c‖² = argmax 2 ⟨z, c⟩ −
        ‖c‖²."""
        assert state.shared is not None
        to = state.shared.reshape(-1, with_features(model)[1] + 1)
        bias = jnp.where(to[:, -1] > 0, -jnp.sum(to[:, :-1] ** 2, axis=1), -1e9)
        return {
            "prototypes": state.own.at[:, head_rows(model)].set(
                jnp.column_stack([2 * to[:, :-1], bias])
            )
        }


def head_rows(model: Model, classes: int | None = None) -> np.ndarray:
    """i[M, width + 1]: the places in f32[d] of each output's weights and bias. SpecError if there
    is not one for each class."""
    kernel, bias = (
        np.flatnonzero(part_of(model, f"{head_of(model)}/{name}")) for name in ("kernel", "bias")
    )
    if len(bias) != (classes or len(bias)):
        raise SpecError(
            f'model "{model.name}": has {len(bias)} outputs for {classes} classes; take a '
            "model with one for each"
        )
    return np.column_stack([kernel.reshape(-1, len(bias)).T, bias])


def pulled(model: Model, prototypes: Array, lam: Array) -> Model:
    """Return the model with the loss ℓ + lam · d, where d is 0 for classes without a prototype."""
    both, width = with_features(model)
    to = prototypes.reshape(-1, width + 1)

    def loss(made: Array, y: Array) -> Array:
        apart = jnp.mean((made[:, :width] - to[y, :-1]) ** 2, axis=1)
        return model.loss(made[:, width:], y) + lam * jnp.where(to[y, -1] > 0, apart, 0.0)

    return model._replace(forward=both, loss=loss)


def sum_features(ask: Ask, models: Array) -> tuple[Array, Array, Array]:
    """Return f32[S, M, width] the sums of the features that each participant's model finds in its
    samples of each class, f32[S, M] the numbers of these samples, and f32[S] the sums of the
    squared norms of its samples' features."""
    model, classes = ask.solver.model, ask.federation.classes
    both, width = with_features(model)

    def one(batch: Samples, w: Array) -> tuple[Array, Array, Array]:
        of_class = jnp.where(batch.mask[:, None], jax.nn.one_hot(batch.y, classes), 0.0)
        z = jnp.where(batch.mask[:, None], both(model.unravel(w), batch.x)[:, :width], 0.0)
        return of_class.T @ z, of_class.sum(axis=0), jnp.sum(z * z)

    jobs = jobs_from(ask.cohort, models, jnp.arange(len(models)))
    return ask.solver.of_samples(one, ask.federation, jobs)
