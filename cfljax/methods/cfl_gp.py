"""CFL-GP (Kim et al. 2024): K random models, and clients that are clustered by how they move the
first one.

Before the first round, and every few rounds for a time, all clients train from the first model; a
client's profile is a running mean of these updates. K-means clusters the profiles, seen in their K
leading singular directions; clusters are named so that most clients stay where they were. Rounds
are FedAvg inside the clusters, weighted by `average`. A client that arrives later joins the cluster
with the least loss until it is clustered.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.devices.compiled import quick_jit
from cfljax.kernels.kmeans import kmeans
from cfljax.lazy import jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    AVERAGES,
    Before,
    Clustered,
    InitialClusters,
    State,
    first_models,
    option,
    similarity,
)

ABOUT = About(
    title="CFL-GP",
    family="clustered",
    authors="Kim, Kim and de Veciana",
    year=2024,
    paper="Clustered federated learning via gradient-based partitioning",
    venue="ICML",
    link="https://proceedings.mlr.press/v235/kim24p.html",
    communication="one model down, one update up; and the same for every client at each clustering",
)
READINGS = (
    Reading(
        "Profile",
        paper="a client's gradients at several models; its program uses the first model only",
        here="the first",
    ),
    Reading(
        "Model of the gradient",
        paper="its program sends the first model, but computes at the client's own",
        here="at the first",
    ),
    Reading(
        "Vector",
        paper="one gradient, or the update of local training",
        here="the update",
    ),
    Reading(
        "Weight β of the newest update after t rounds",
        paper="in its program 1 / (⌊(t + 1) / (K P)⌋ + 1) with the period P",
    ),
    Reading(
        "When",
        paper="its program clusters at every second round below the tenth, by that round's "
        "training",
        here="at these rounds, by separate training",
        option=("period", "last"),
    ),
    Reading(
        "First round",
        paper="its program moves each of the K models by its cluster's updates of the first model",
        here="by their updates of the cluster's own model, as in all other rounds",
    ),
    Reading(
        "Weights inside a cluster",
        paper="its program has equal ones",
        option="average",
    ),
)


@dataclasses.dataclass(frozen=True)
class CFLGP(Clustered):
    """CFL-GP: clients clustered by the leading directions of their updates of one model.

    All clients train from the first model every `period` rounds until round `last`. The update of
    client i joins its profile, a row of f32[C, d] (or of sketches, by `similarity`), with the
    weight β. The left singular vectors of the profiles times the `clusters` largest singular values
    are the points of K-means. Between clusterings each cluster runs FedAvg by `average`.
    """

    compares_all, pairs = True, 0

    clusters: int = option(4, "number of models", low=1, search=(2, 3, 4, 6))
    average: str = option(
        "uniform", "weights of the participants inside a cluster", choices=AVERAGES
    )
    period: int = option(2, "rounds between clusterings", low=1)
    last: int = option(9, "round of the last clustering", low=0)
    similarity: str = similarity(again=False)

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. Begin with K models, and with the clusters of what clients train from the first."""
        models = np.asarray(first_models(ask.key, ask.model, self.clusters))
        nobody = np.full(ask.federation.clients, -1, np.int32)
        labels, profiles = self.cluster(ask, models[0], nobody, None, 0)
        return InitialClusters(models, labels, memory=profiles)

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return when clients are clustered again: every `period` rounds, until round `last`."""
        return tuple(range(self.period, min(self.last + 1, rounds), self.period))

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Cluster the clients again."""
        labels, profiles = self.cluster(
            ask, np.asarray(state.models[0]), np.array(state.labels), np.array(state.memory), round
        )
        return state._replace(labels=jnp.asarray(labels), memory=jnp.asarray(profiles))

    def cluster(
        self,
        ask: Before,
        model: np.ndarray,
        labels: np.ndarray,
        profiles: np.ndarray | None,
        round: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """HOST. The clusters i32[C] and the profiles f32[C, m], from those before. Who cannot train
        keeps both."""
        from scipy.optimize import linear_sum_assignment

        ids, k = ask.clients_to_cluster(), self.clusters
        updates = ask.updates(model, ids, similarity=self.similarity)
        profiles = (
            np.zeros((len(labels), updates.shape[1]), np.float32) if profiles is None else profiles
        )
        # The first profile is the first update
        known = profiles[ids].any(axis=1, keepdims=True)
        newest = np.where(known, 1 / ((round + 1) // (k * self.period) + 1), 1.0)
        mixed = (1 - newest) * profiles[ids] + newest * updates
        profiles[ids] = np.where(
            np.isfinite(mixed).all(axis=1, keepdims=True), mixed, profiles[ids]
        )
        left, size, _ = np.linalg.svd(profiles[ids].astype(np.float64), full_matrices=False)
        points = jnp.asarray((left * size)[:, :k], jnp.float32)
        found = np.asarray(
            quick_jit(kmeans, (2,))(ask.fold("cfl_gp"), points, k, None, ask.uid[ids]).labels
        )

        def mark(labels: np.ndarray) -> np.ndarray:
            return (labels[:, None] == np.arange(k)).astype(int)

        # Clusters are named so that most clients keep their label
        in_common = mark(found).T @ mark(labels[ids])
        labels[ids] = linear_sum_assignment(-in_common)[1][found]
        return labels, profiles
