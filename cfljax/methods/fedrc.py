"""FedRC (Guo et al. 2024): FedEM whose clusters differ by how labels follow from inputs (concepts),
not by which labels there are.

As in FedEM (see `fedem`) there are K models, and for each client i a mixture π_i of them. The share
of model k in a sample is divided by the weight that label y has in cluster k: q_ijk ∝ π_ik
exp(−ℓ_k(x_ij, y_ij)) / C_k(y_ij), where C_k(y) = Σ_ij q_ijk [y_ij = y] / Σ_ij q_ijk. A cluster that
has many samples of a label explains them well for that reason alone, and this is taken out. Then
π_ik = mean_j q_ijk, every model is trained on the loss weighted by q, and each model is averaged. A
client is scored by the mean of the models' probabilities, weighted by π. With `clusters = 1` it is
FedAvg.

A newcomer, as any client that has not been drawn yet, gets its mixture by ten E-steps
on its own training samples from equal weights, with the models and C as they are. A client without
training samples has one model, the one of least loss on its test samples.
"""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jax, jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import MixtureState, Soft, Solver, in_lists, sample_labels
from cfljax.types import Array, Cohort, Federation, Quantity

ABOUT = About(
    title="FedRC",
    family="soft",
    authors="Guo, Tang and Lin",
    year=2024,
    paper="FedRC: tackling diverse distribution shifts challenge in federated learning by robust "
    "clustering",
    venue="ICML",
    link="https://arxiv.org/abs/2301.12379",
    models="K down, K up",
    communication="K models and K · M floats (C, M classes) down, K updates and K · M floats "
    "(its sums of q by label) up",
)
READINGS = (
    Reading(
        "Sums of C",
        paper="over all clients",
        here="over all clients that have been drawn, by their last rounds. In its program "
        "undrawn ones count 1/M per label",
    ),
    Reading(
        "First round",
        paper="not said",
        here="C is equal for all labels, so the E-step is FedEM's, as in its program",
    ),
    Reading(
        "Label without weight",
        paper="nothing; its program bounds C by 1e-8",
        here="C is at least 1e-6, and equal for a label that nobody has had",
    ),
    Reading(
        "Weights of the mean",
        paper="by samples of all clients",
        here="by samples of the round's participants",
        option="average",
    ),
    Reading(
        "Mixture of a newcomer",
        paper="not said; in its program newcomers have no C, so their E-step is FedEM's",
        here="ten E-steps with the current models and C",
    ),
)

# The smallest C_k(y)
LEAST = 1e-6
# Participants whose labels are summed at a time, so that memory does not hold a number per sample
# and label of all
TOGETHER = 16


@dataclasses.dataclass(frozen=True)
class FedRC(Soft):
    """FedRC: FedEM whose clusters differ in the meaning of labels, not in their frequencies.

    The server has `clusters` models f32[K, d], and each client a mixture π_i, a row of f32[C, K],
    as in FedEM. A participant divides the share of model k in a sample by C_k(y) of the sample's
    label, an entry of f32[K, M]: q_ijk ∝ π_ik exp(−ℓ_k) / C_k(y_ij). It sends its sums of q by
    label, f32[K, M], from which the server makes the next C_k(y). `average` says how each model is
    averaged.
    """

    diagnostics = {
        "label_weights": Quantity("weight of each label in each cluster", "share"),
    }
    reveals = "the sum of q of each label"

    def first_memory(self, federation: Federation) -> Array:
        """Return f32[C, K, M]: each client's sums of q over its samples of each label, in its last
        round."""
        return jnp.zeros((federation.clients, self.clusters, federation.classes))

    def of_label(self, state: MixtureState) -> Array:
        """Return f32[K, M]: log C_k(y), which is added to the loss of model k on label y."""
        return jnp.log(label_weights(jnp.sum(state.memory, axis=0)))

    def remember(
        self,
        state: MixtureState,
        solver: Solver,
        federation: Federation,
        cohort: Cohort,
        shares: Array,
    ) -> Array:
        """Return the sums of all clients, in which the participants have f32[S, K, M] of this
        round."""
        here = in_lists(federation, cohort)
        labels = jnp.where(here, sample_labels(solver, federation, cohort), -1)

        def of(participant: tuple[Array, Array]) -> Array:
            q, y = participant
            return jnp.matmul(
                q, jax.nn.one_hot(y, federation.classes), precision=jax.lax.Precision.HIGHEST
            )

        sums = jax.lax.map(
            of, (jnp.where(here[:, None, :], shares, 0.0), labels), batch_size=TOGETHER
        )
        return cohort.write(state.memory, sums, jnp.isfinite(sums).all(axis=(1, 2)))

    def floats(self, classes: int) -> int:
        """Return the size of C, which is sent down, and of the sums of q, which are sent up."""
        return self.clusters * classes

    def extras(self, state: MixtureState) -> dict[str, Array]:
        """Return the mixture, and C of the last round as `label_weights`."""
        return super().extras(state) | {
            "label_weights": label_weights(jnp.sum(state.memory, axis=0))
        }


def label_weights(sums: Array) -> Array:
    """Return f32[K, M]: C_k(y), from the sums of q f32[K, M] over all samples by cluster and label.
    Labels that nobody has had weigh the same in all clusters."""
    shares = sums / jnp.maximum(jnp.sum(sums, axis=1, keepdims=True), LEAST)
    seen = jnp.sum(sums, axis=0) > 0
    return jnp.where(seen, jnp.maximum(shares, LEAST), 1 / sums.shape[1])
