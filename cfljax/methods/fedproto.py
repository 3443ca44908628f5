"""FedProto (Tan et al. 2022): each client has a model of its own, which it does not send. Clients share prototypes: for each class
the mean features of its samples, to which all pull the features of their own samples.

A client trains by the loss ℓ + lam · d, where d is the mean squared difference between the features of a sample and the global
prototype of its class. It sends its own prototypes after training; the global one is the mean of those of the participants. The
model with its own head is scored. `accuracy_prototypes` is that of the class whose global prototype is nearest.

Readings:
- Pull. Paper: of a client's prototype of a class to the global one; its program pulls each sample's features. Here: as its program.
  Option: none.
- Prototypes that are sent. Paper: of all samples, after training; its program takes features from its steps. Here: as in the paper.
  Option: none.
- Weights of the mean. Paper: by samples, and once more divided by the number of clients; its program's are equal. Here: equal.
  Option: none.
- Class that no participant has. Paper: all clients take part. Here: it keeps its last global prototype. Option: none.
- Scored model. Paper: the nearest prototype; its program scores the head, too. Here: the head. Option: none.

Communication per participant and round: the known prototypes down, the prototypes of its classes up.

A client that was not drawn yet, a newcomer too, is scored with the first model.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.models.flat import features_of, head_of, part_of
from cfljax.round.prototypes import Prototypes, from_flat, near, of_participants
from cfljax.round.recipes import Ask, Exchanged, GradientAt, OwnModels, OwnSteps, Peers, StepRule, entry, option
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Tree

PAPER = "Tan et al. 2022"


@dataclasses.dataclass(frozen=True)
class FedProto(Peers):
    """FedProto: a model for each client, whose features are pulled to global prototypes of the classes."""

    sends, own_steps = False, True

    lam: float = option(1.0, "strength of the pull to the prototypes", low=0.0, traced=True)

    @property
    def without(self) -> dict[str, str]:
        """What is for updates."""
        return super().without | dict.fromkeys(("privacy", "compress", "attack", "robust"), "it sends prototypes, not updates")

    def check_labels(self, where: str) -> None:
        """Prototypes are of labels; raises SpecError."""
        name = where.removeprefix("method.")
        raise SpecError(f'method.name = "{name}": has a prototype for each label, and here samples have several')

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """No prototypes."""
        if part_of(model, f"{head_of(model)}/bias").sum() != federation.classes:
            raise SpecError(f'model "{model.name}": method.fedproto needs an output for each class')
        return jnp.zeros(federation.classes * (features_of(model)[1] + 1))

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """By the loss with the pull."""
        move, (features, width) = make_stepper(rule, LocalStep.of(hyper), ()), features_of(model)

        def step(gradient: GradientAt, at: tuple[Position, Array]) -> tuple[tuple[Position, Array], Array]:
            found = gradient(at[0].params, extra=near(features, from_flat(at[1], width), hyper["lam"]))
            return (move(at[0], found), at[1]), found.loss

        def begin(start: Tree, home: Array | None) -> tuple[Position, Array]:
            assert home is not None
            return start_at(rule, start, None), home

        return OwnSteps(begin, step, lambda at: (at[0].params, at[1]))

    def exchange(self, ask: Ask, state: OwnModels, own: Array) -> Exchanged:
        """Average the participants' prototypes."""
        width = features_of(ask.solver.model)[1]
        assert state.shared is not None
        before, mine = from_flat(state.shared, width), of_participants(ask, own)
        there = (mine.known > 0).astype(jnp.float32)
        number = there.sum(axis=0)
        mean = jnp.einsum("sm,smw->mw", there, mine.means) / jnp.maximum(number, 1.0)[:, None]
        after = Prototypes(jnp.where(number[:, None] > 0, mean, before.means), jnp.where(number > 0, number, before.known))
        down = width * jnp.sum(before.known > 0) * jnp.sum(ask.cohort.mask)
        return Exchanged(own, after.flat, down, width * jnp.sum(there))

    def also(self, model: Model, state: OwnModels) -> dict[str, Array]:
        """Models whose head finds the nearest prototype c: argmin ‖z − c‖² = argmax 2 ⟨z, c⟩ − ‖c‖²."""
        assert state.shared is not None
        means, known = from_flat(state.shared, features_of(model)[1])
        bias = jnp.where(known > 0, -jnp.sum(means**2, axis=1), -1e9)
        columns = [np.flatnonzero(part_of(model, f"{head_of(model)}/{name}")) for name in ("kernel", "bias")]
        return {"prototypes": state.own.at[:, columns[0]].set(2 * means.T.ravel()).at[:, columns[1]].set(bias)}


fedproto = entry("fedproto", FedProto)
