"""FedPAC (Xu, Tong and Huang 2023): a global body, and a head for each client, which the server
mixes from the heads of clients whose classes have similar features.

A participant trains its head for some epochs with the body that it was sent, then the body with
that head, by the loss ℓ + lam · d, where d is the mean squared difference between the features of a
sample and the global centroid of its class. The server averages the bodies by samples, and the
features of each class over all samples of the participants: the new centroids.

The new head of client i is Σ_j α_j φ_j, where φ_j are the participants' trained heads and α ≥ 0,
Σ_j α_j = 1 minimises the estimate Σ_j α_j² V_j + ‖H_i − Σ_j α_j H_j‖² of variance and squared bias.
H_j holds for each class the mean features of its samples, times the share of the class in the n_j
samples of client j, and V_j = (E‖z‖² − ‖H_j‖²) / n_j, where z are the features under the body that
was sent.

A newcomer, or a client that has not been drawn yet, is scored with the body below the mean by
samples of all mixed heads.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.simplex import combine_heads
from cfljax.lazy import jax, jnp
from cfljax.local.train import Position, Turns, make_stepper, start_at
from cfljax.methods.fedproto import head_rows, pulled, sum_features
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
    Work,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model

ABOUT = About(
    title="FedPAC",
    family="personal",
    authors="Xu, Tong and Huang",
    year=2023,
    paper="Personalized federated learning with feature alignment and classifier collaboration",
    venue="ICLR",
    link="https://arxiv.org/abs/2306.11867",
    models="1 down, 1 up, and centroids",
    communication="a model and the known centroids down; a model and the estimate of its "
    "variance up, and for each of its classes the centroid, the mean features "
    "before training and the number of samples",
)
READINGS = (
    Reading(
        "Learning rates",
        paper="its program's are 0.1 for heads and 0.01 or 0.02 for bodies",
        here="`train.lr` for both",
    ),
    Reading(
        "Class without a global centroid",
        paper="its program takes the client's own before training",
        here="no pull; a class that no participant has keeps its last centroid",
    ),
    Reading(
        "Small weights",
        paper="its program sets weights below 0.001 to 0",
        here="the minimum as it is",
    ),
    Reading(
        "Scored model",
        paper="its program's is the one after local training",
        here="the new body and the mixed head, as in PFLlib; fine-tuning trains them on for a "
        "last score",
        option="train.finetune_steps",
    ),
)

Carry = tuple[
    Position, Array, Array
]  # What the steps of a client carry: its model, the centroids, and the epoch


@dataclasses.dataclass(frozen=True)
class FedPAC(Peers):
    """FedPAC: a global body whose features are pulled to global centroids, and for each client a
    mixture of all heads.

    A participant trains its head for `head_epochs` epochs, then the body by ℓ + lam · d, where d is
    the distance of its samples' features to the global centroids f32[M, width]. It sends its model,
    new centroids, and the mean features H_j and their variance V_j under the body that it was sent.
    The server averages bodies and centroids by samples, and gives each client the mixture of heads
    whose weights α minimise Σ_j α_j² V_j + ‖H_i − Σ_j α_j H_j‖². `lam` is the strength of the pull.
    """

    own_steps = True
    counts_labels = "has a centroid for each label, and here samples have several"

    lam: float = option(1.0, "strength of the pull to the centroids", low=0.0, traced=True)
    head_epochs: int = option(1, "epochs of the head, before the body's", low=1)

    @property
    def without(self) -> dict[str, str]:
        """Turns are counted in epochs."""
        return super().without | {"steps": "it counts epochs"}

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """No centroids: a row of zeros for each class, and 0 in its end, where others have the
        number of samples that it is of."""
        return jnp.zeros(head_rows(model, federation.classes).size)

    def work(self, work: Work) -> Work:
        """Epochs of the head, then of the body."""
        return work._replace(epochs=(work.epochs or 0) + self.head_epochs)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """On the head, then with a new optimiser on the body."""
        move, head = make_stepper(rule, LocalStep.of(hyper), ()), part_of(model, head_of(model))
        turns = Turns(self.head_epochs, head, head | True).masks(model.unravel)

        def enter(at: Carry, epoch: Array) -> Carry:
            begins, fresh = (
                (at[2] < self.head_epochs) & (epoch >= self.head_epochs),
                start_at(rule, at[0].params, None),
            )
            return (
                jax.tree.map(lambda new, old: jnp.where(begins, new, old), fresh, at[0]),
                at[1],
                epoch,
            )

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            found = gradient(at[0].params, of=pulled(model, at[1], hyper["lam"]))
            trains = jax.tree.map(lambda *each: jnp.where(at[2] < self.head_epochs, *each), *turns)
            return (move(at[0], found, trains), *at[1:]), found.loss

        begin = lambda start, home: (start_at(rule, start, None), home, jnp.int32(0))  # noqa: E731
        return OwnSteps(begin, step, lambda at: (at[0].params, at[1]), enter)

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> Exchanged:
        """Average bodies and centroids, mix heads. Clients whose features are not finite are left
        out."""
        assert before.shared is not None
        ids, model, old = (
            ask.cohort.ids,
            ask.solver.model,
            before.shared.reshape(ask.federation.classes, -1),
        )
        trained, head = after.own[ids], part_of(model, head_of(model))
        sums, count, squares = sum_features(ask, before.own[ids])
        later, *_ = sum_features(ask, trained)
        there = (
            arrived
            & (count.sum(axis=1) > 0)
            & jnp.isfinite(squares)
            & jnp.isfinite(later).all(axis=(1, 2))
        )
        every = (
            jnp.where(jnp.expand_dims(there, range(1, each.ndim)), each, 0.0)
            for each in (sums, count, squares, later)
        )
        sums, count, squares, later = every
        size, number = count.sum(axis=1), count.sum(axis=0)[:, None]
        n = jnp.maximum(size, 1.0)
        h = sums.reshape(len(n), -1) / n[:, None]
        alpha = combine_heads(jnp.maximum(squares / n - jnp.sum(h * h, axis=1), 0.0) / n, h, there)
        shares = size / jnp.maximum(size.sum(), 1.0)
        mixed = jnp.matmul(jnp.append(alpha, shares[None], axis=0), trained, precision=HIGHEST)
        own = after.own.at[jnp.where(there, ids, len(after.own))].set(mixed[:-1], mode="drop")
        own = jnp.where(head | ~jnp.any(there), own, mixed[-1])
        new = jnp.where(
            number > 0,
            jnp.concatenate([later.sum(axis=0) / jnp.maximum(number, 1.0), number], 1),
            old,
        )
        down = later.shape[2] * jnp.sum(old[:, -1] > 0) * jnp.sum(ask.cohort.mask)
        up = (2 * later.shape[2] + 1) * jnp.sum(count > 0) + jnp.sum(there)
        return after._replace(own=own, shared=new.ravel()), down, up
