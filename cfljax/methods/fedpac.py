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
from typing import NamedTuple

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.simplex import combine_heads
from cfljax.lazy import jax, jnp
from cfljax.local.train import Position, Turns, make_stepper, start_at
from cfljax.methods.fedproto import Prototypes, add_prototype_loss, head_rows, sum_features
from cfljax.models.flat import head_of, part_of
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    GradientAt,
    OwnModels,
    OwnSteps,
    Peers,
    StepRule,
    Work,
    head_rate,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Tree

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
        here="`train.lr` for both, unless the heads' is given",
        option="head_lr",
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


class Carry(NamedTuple):
    """What the steps of a client carry."""

    position: Position
    # The centroids, as `Prototypes.write` has them
    centroids: Array
    # i32[]: the epoch of the step
    epoch: Array


@dataclasses.dataclass(frozen=True)
class FedPAC(Peers):
    """FedPAC: a global body whose features are pulled to global centroids, and for each client a
    mixture of all heads.

    A participant trains its head for `head_epochs` epochs at the rate `head_lr`, then the body by ℓ
    + lam · d, where d is the distance of its samples' features to the global centroids f32[M,
    width]. It sends its model, new centroids, and the mean features H_j and their variance V_j
    under the body that it was sent. The server averages bodies and centroids by samples, and gives
    each client the mixture of heads whose weights α minimise Σ_j α_j² V_j + ‖H_i − Σ_j α_j H_j‖².
    `lam` is the strength of the pull.
    """

    own_steps = True
    counts_labels = "has a centroid for each label, so samples need one class each"

    lam: float = option(
        1.0,
        "strength of the pull to the centroids",
        low=0.0,
        traced=True,
        search=(0.1, 10.0, "log"),
    )
    head_epochs: int = option(1, "epochs of the head, before the body's", low=1)
    head_lr: float | None = head_rate()

    def step(self, hyper: Hyper) -> LocalStep:
        """Move the head at `head_lr`, if it is given."""
        return LocalStep.with_head(hyper)

    @property
    def without(self) -> dict[str, str]:
        """Refuse `train.steps`: turns are counted in epochs."""
        return super().without | {"steps": "it counts epochs"}

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """Return no centroids, as a vector (`Prototypes.write`), which is as long as the head."""
        return jnp.zeros(head_rows(model, federation.classes).size)

    def work(self, work: Work) -> Work:
        """Return the epochs of the head and of the body, together."""
        return work._replace(epochs=(work.epochs or 0) + self.head_epochs)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps on the head, and then, with a new optimiser, on the body. Before each step
        `enter` gets the step's epoch, from which follows whose turn it is."""
        move = make_stepper(rule, self.step(hyper), ())
        head = part_of(model, head_of(model))
        everything = head | True
        of_head, of_body = Turns(self.head_epochs, head, everything).masks(model.unravel)

        def begin(start: Tree, home: Array) -> Carry:
            return Carry(start_at(rule, start, None), home, jnp.int32(0))

        def enter(at: Carry, epoch: Array) -> Carry:
            # The body's optimiser has not seen the head's steps
            body_begins = (at.epoch < self.head_epochs) & (epoch >= self.head_epochs)
            fresh = start_at(rule, at.position.params, None)
            position = jax.tree.map(
                lambda new, old: jnp.where(body_begins, new, old), fresh, at.position
            )
            return Carry(position, at.centroids, epoch)

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            # The pull has no gradient by the head, so that it moves the body alone
            pulled = add_prototype_loss(model, at.centroids, hyper["lam"])
            found = gradient(at.position.params, of=pulled)
            trains = jax.tree.map(
                lambda first, then: jnp.where(at.epoch < self.head_epochs, first, then),
                of_head,
                of_body,
            )
            return at._replace(position=move(at.position, found, trains)), found.loss

        def end(at: Carry) -> tuple[Tree, Array]:
            return at.position.params, at.centroids

        return OwnSteps(begin, step, end, enter)

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> OwnModels:
        """Average bodies and centroids, and mix heads. Clients whose features are not finite are
        left out."""
        assert before.shared is not None
        ids = ask.cohort.ids
        model = ask.solver.model
        head = part_of(model, head_of(model))
        old = Prototypes.read(before.shared, ask.federation.classes)
        trained = after.rows[ids]
        # Heads are compared under the body that was sent, centroids are of the trained one
        sums, count, squares = sum_features(ask, before.rows[ids])
        trained_sums, *_ = sum_features(ask, trained)
        there = (
            arrived
            & (count.sum(axis=1) > 0)
            & jnp.isfinite(squares)
            & jnp.isfinite(trained_sums).all(axis=(1, 2))
        )
        sums, count, squares, trained_sums = (
            jnp.where(jnp.expand_dims(there, range(1, each.ndim)), each, 0.0)
            for each in (sums, count, squares, trained_sums)
        )
        size = count.sum(axis=1)
        n = jnp.maximum(size, 1.0)
        # H_j: the mean features of each class times its share, so sums over all samples n_j
        h = sums.reshape(len(n), -1) / n[:, None]
        # V_j = (E‖z‖² − ‖H_j‖²) / n_j; rounding can move it below 0
        variance = jnp.maximum(squares / n - jnp.sum(h * h, axis=1), 0.0) / n
        alpha = combine_heads(variance, h, there)

        # One product for the participants' mixtures and, in its last row, the mean by samples
        by_samples = size / jnp.maximum(size.sum(), 1.0)
        weights = jnp.append(alpha, by_samples[None], axis=0)
        mixed = jnp.matmul(weights, trained, precision=HIGHEST)
        rows = ask.cohort.write(after.rows, mixed[:-1], there)
        # All have the mean body; heads are those just mixed, or as they were
        rows = jnp.where(head | ~jnp.any(there), rows, mixed[-1])

        number = count.sum(axis=0)
        centroids = trained_sums.sum(axis=0) / jnp.maximum(number, 1.0)[:, None]
        # A class that no participant has keeps its last centroid
        has_new = number > 0
        new = Prototypes(
            jnp.where(has_new[:, None], centroids, old.means),
            jnp.where(has_new, number, old.number),
        )
        width = trained_sums.shape[2]
        ask.download(width, each=jnp.sum(old.known))
        # For each class two means and a number of samples, and V_j
        ask.upload(2 * width + 1, each=jnp.sum(count > 0, axis=1))
        ask.upload(1, who=there)
        return after._replace(rows=rows, shared=new.write())
