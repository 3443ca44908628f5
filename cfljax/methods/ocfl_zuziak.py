"""OCFL of Zuziak et al. (2024), One-Shot Clustered Federated Learning: FedAvg with all clients
until their updates diverge, one clustering of the clients then, and FedAvg inside the clusters.
(`ocfl` is another method, by Lu et al.)

The temperature of a round is ‖D‖ / √(4 n (n − 1)), D being the cosine distances of the n clients'
updates. After the first round in which it has risen the clients are clustered by D. One that
arrives later joins the cluster with the least loss.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.kernels import host
from cfljax.kernels.cosine import cosine_matrix
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    Before,
    Everybody,
    OneCluster,
    RoundResult,
    State,
    option,
    similarity,
)
from cfljax.types import Array

ABOUT = About(
    title="OCFL (Zuziak)",
    family="clustered",
    authors="Zuziak et al.",
    year=2024,
    paper="One-shot clustering for federated learning",
    link="https://arxiv.org/abs/2503.04231",
    communication="one model down, one update up. Clients that arrive later get all models once",
)
READINGS = (
    Reading(
        "Clustering",
        paper="any; mean shift and HDBSCAN do best",
        here="mean shift of the rows of D; or HDBSCAN with at least three members per cluster, "
        "as in the authors' demonstration",
        option="algorithm",
    ),
    Reading(
        "Noise of HDBSCAN",
        paper="its program makes it one cluster",
    ),
    Reading(
        "Order",
        paper="its program clusters before it averages",
        here="it averages, then clusters",
    ),
    Reading(
        "Weights inside a cluster",
        paper="its program's are equal",
        here="by samples",
        option='average = "uniform"',
    ),
)


@dataclasses.dataclass(frozen=True)
class OCFLZuziak(FedAvg):
    """OCFL (Zuziak): one clustering, as soon as the clients' updates diverge.

    All clients take part in rounds of FedAvg on one model. After the first round in which the
    temperature ‖D‖ / √(4 n (n − 1)) of the updates' cosine distances D, f32[n, n], has risen,
    `algorithm` clusters the clients by D, into at most `max_clusters` clusters. FedAvg by `average`
    runs inside them from then on. `similarity = "sketch"` takes the cosines of sketches.
    """

    first_clusters = OneCluster()
    compares = True
    compares_all = True
    draw = Everybody()

    algorithm: str = option("mean_shift", "clustering algorithm", choices=("mean_shift", "hdbscan"))
    max_clusters: int = option(32, "largest number of clusters; more are an error", low=1)
    similarity: str = similarity(again=False)

    def first(self, ask: Ask, state: State) -> State:
        """Remember the cosines f32[C, C] of the last round's updates, 0 throughout for clients that
        took no part; and the temperature f32[] of the round before it, infinite if there is none,
        or once the clients are clustered."""
        return state._replace(memory=(jnp.zeros((len(state.labels),) * 2), jnp.float32(jnp.inf)))

    def remember(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> tuple[Array, Array]:
        """Return the cosines of the round."""
        cosines, last = before.memory
        ids = ask.cohort.ids
        new = cosine_matrix(done.moves, mask=ask.cohort.mask)
        return jnp.zeros_like(cosines).at[ids[:, None], ids[None, :]].set(new), last

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Cluster the clients if the temperature has risen."""
        cosines, last = (np.asarray(each, np.float64) for each in state.memory)
        ids = ask.sort_by_uid(np.flatnonzero(np.diagonal(cosines) > 0))
        distances = 1.0 - cosines[np.ix_(ids, ids)]
        n = len(ids)
        # float32 as in the state, so that a temperature is compared with itself after a resume
        heat = np.float32(np.linalg.norm(distances) / np.sqrt(max(4 * n * (n - 1), 1)))
        rises = heat > last
        state = state._replace(memory=(state.memory[0], jnp.float32(np.inf if rises else heat)))
        if not rises:
            return state
        from sklearn.cluster import HDBSCAN, MeanShift
        from threadpoolctl import threadpool_limits

        algorithm = MeanShift()
        if self.algorithm == "hdbscan":
            algorithm = HDBSCAN(min(3, n), metric="precomputed", copy=True)
        # Several threads wait for each other longer than they compute
        with threadpool_limits(limits=1):
            # Noise (−1) is a cluster
            labels = algorithm.fit_predict(distances) + 1
        return ask.divide(state, ids, host.renumber_by_appearance(labels))
