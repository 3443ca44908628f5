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
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.local.train import Position, Samples, make_stepper, start_at
from cfljax.models.features import with_features
from cfljax.models.flat import head_of, part_of
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    GradientAt,
    OwnModels,
    OwnSteps,
    Peers,
    StepRule,
    jobs_from,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Quantity, Tree

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
    counts_labels = "has a prototype for each label, so samples need one class each"

    lam: float = option(
        1.0,
        "strength of the pull to the prototypes",
        low=0.0,
        traced=True,
        search=(0.1, 10.0, "log"),
    )

    @property
    def without(self) -> dict[str, str]:
        """Refuse the options that act on updates, as no update is sent."""
        return super().without | dict.fromkeys(
            ("privacy", "compress", "attack", "robust"), "it sends prototypes, not updates"
        )

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """Return no prototypes, as a vector (`Prototypes.write`). It is as long as the head: in
        both a class has `width` numbers and one more."""
        return jnp.zeros(head_rows(model, federation.classes).size)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps by the loss with the pull. They carry the model's position and the
        prototypes, which stay as they are."""
        move = make_stepper(rule, LocalStep.of(hyper), ())

        def begin(start: Tree, home: Array) -> tuple[Position, Array]:
            return start_at(rule, start, None), home

        def step(
            gradient: GradientAt, at: tuple[Position, Array]
        ) -> tuple[tuple[Position, Array], Array]:
            position, home = at
            pulled = add_prototype_loss(model, home, hyper["lam"])
            found = gradient(position.params, of=pulled)
            return (move(position, found), home), found.loss

        def end(at: tuple[Position, Array]) -> tuple[Tree, Array]:
            position, home = at
            return position.params, home

        return OwnSteps(begin, step, end)

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> OwnModels:
        """Average the participants' prototypes of each class."""
        assert before.shared is not None
        old = Prototypes.read(before.shared, ask.federation.classes)
        sums, count, _ = sum_features(ask, after.rows[ask.cohort.ids])
        # A participant whose features of a class are not finite sends none of it
        sent = (count > 0) & jnp.isfinite(sums).all(axis=2)
        own = jnp.where(sent[:, :, None], sums / jnp.maximum(count, 1.0)[:, :, None], 0.0)
        number = sent.sum(axis=0)
        mean = own.sum(axis=0) / jnp.maximum(number, 1)[:, None]
        # A class that no participant has keeps its last global prototype
        has_new = number > 0
        new = Prototypes(
            jnp.where(has_new[:, None], mean, old.means), jnp.where(has_new, number, old.number)
        )
        width = sums.shape[2]
        ask.download(width, each=jnp.sum(old.known))
        ask.upload(width, each=sent.sum(axis=1))
        return after._replace(shared=new.write())

    def also(self, model: Model, state: OwnModels) -> dict[str, Array]:
        """Return f32[C, d]: models whose head finds the nearest prototype c, argmin ‖z − c‖² =
        argmax 2 ⟨z, c⟩ − ‖c‖²."""
        assert state.shared is not None
        positions = head_rows(model)
        prototypes = Prototypes.read(state.shared, len(positions))
        # No sample is nearest to a prototype that nobody knows
        bias = jnp.where(prototypes.known, -jnp.sum(prototypes.means**2, axis=1), -1e9)
        head = jnp.column_stack([2 * prototypes.means, bias])
        return {"prototypes": state.rows.at[:, positions].set(head)}


class Prototypes(NamedTuple):
    """The mean features of each class. Leading axes, as of clients, come before those here."""

    # f32[M, width]: the mean features; zeros for a class without a prototype
    means: Array
    # f32[M]: how many clients or samples each is the mean of; 0: the class has no prototype
    number: Array

    @property
    def known(self) -> Array:
        """bool[M]: which classes have a prototype."""
        return self.number > 0

    @classmethod
    def read(cls, vector: Array, classes: int) -> Prototypes:
        """Read the prototypes of this number of classes from a vector f32[M · (width + 1)]."""
        rows = vector.reshape(*vector.shape[:-1], classes, -1)
        return cls(rows[..., :-1], rows[..., -1])

    def write(self) -> Array:
        """Return the vector f32[M · (width + 1)] in which states and messages hold them: class
        after class, its mean features and then its number."""
        rows = jnp.concatenate([self.means, self.number[..., None]], axis=-1)
        return rows.reshape(*rows.shape[:-2], -1)


def head_rows(model: Model, classes: int | None = None) -> np.ndarray:
    """Return i[M, width + 1]: the positions in the vector f32[d] of each output's weights, and in
    the last column of its bias. SpecError if there is not one output for each of `classes` classes
    (None: any number)."""
    kernel, bias = (
        np.flatnonzero(part_of(model, f"{head_of(model)}/{name}")) for name in ("kernel", "bias")
    )
    if len(bias) != (classes or len(bias)):
        raise SpecError(
            f'model "{model.name}": has {len(bias)} outputs for {classes} classes; take a '
            "model with one for each"
        )
    return np.column_stack([kernel.reshape(-1, len(bias)).T, bias])


def add_prototype_loss(model: Model, prototypes: Array, lam: Array) -> Model:
    """Return the model with the loss ℓ + lam · d, where d is the mean squared difference between a
    sample's features and the prototype of its class; 0 for a class without one.

    Args:
      model: The network.
      prototypes: The vector of `Prototypes.write`.
      lam: f32[] the strength of the pull.
    """
    # `both` computes the features and, in the columns after them, the logits
    both, width = with_features(model)
    # Each prototype has `width` numbers and one more in the vector
    known = Prototypes.read(prototypes, prototypes.shape[-1] // (width + 1))

    def loss(made: Array, y: Array) -> Array:
        features, logits = made[:, :width], made[:, width:]
        far = jnp.mean((features - known.means[y]) ** 2, axis=1)
        return model.loss(logits, y) + lam * jnp.where(known.known[y], far, 0.0)

    return model._replace(forward=both, loss=loss)


def sum_features(ask: Ask, models: Array) -> tuple[Array, Array, Array]:
    """Return (f32[S, M, width] the sums of the features of each participant's samples of each
    class, f32[S, M] the numbers of these samples, f32[S] the sums of the squared norms of all its
    samples' features). `models` f32[S, d]: the model with which each computes them."""
    model, classes = ask.solver.model, ask.federation.classes
    both, width = with_features(model)

    def sum_of_client(batch: Samples, w: Array) -> tuple[Array, Array, Array]:
        of_class = jnp.where(batch.mask[:, None], jax.nn.one_hot(batch.y, classes), 0.0)
        z = jnp.where(batch.mask[:, None], both(model.unravel(w), batch.x)[:, :width], 0.0)
        return of_class.T @ z, of_class.sum(axis=0), jnp.sum(z * z)

    jobs = jobs_from(ask.cohort, models, jnp.arange(len(models)))
    return ask.solver.of_samples(sum_of_client, ask.federation, jobs)
