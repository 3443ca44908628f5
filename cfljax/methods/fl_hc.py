"""FL+HC (Briggs et al. 2020): a number of rounds of FedAvg with all clients, then one hierarchical
clustering of the clients' updates, then FedAvg inside the clusters.

After `warmup_rounds` rounds, in which every client takes part whatever `train.participation` says,
all clients train once more from the global model, and their updates are clustered on the host. An
update that is not finite joins the first cluster. More clusters than `max_clusters` end the run
with an error. A client that arrives after the clustering joins the cluster with the least loss.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import Before, OneCluster, State, WarmUp, option, similarity

ABOUT = About(
    title="FL+HC",
    family="clustered",
    authors="Briggs, Fan and Andras",
    year=2020,
    paper="Federated learning with hierarchical clustering of local updates to improve training "
    "on non-IID data",
    venue="IJCNN",
    link="https://arxiv.org/abs/2004.11791",
    communication="one model down, one update up; and the same once for each client, in the "
    "round after the clustering. Clients that arrive later get all models once",
)
READINGS = (
    Reading(
        "Threshold",
        paper="a distance, found by trial",
        here="in units of the median distance of two clients, because distances of updates grow "
        "with the model and the learning rate",
        option='unit = "absolute"',
    ),
    Reading(
        "Metric and linkage",
        paper="compares l1, l2 and cosine; single, complete, average and Ward's linkage",
        here="l1 and complete",
        option=("metric", "linkage"),
    ),
    BY_SAMPLES,
)

METRICS = {"l1": "l1", "l2": "euclidean", "cosine": "cosine"}


@dataclasses.dataclass(frozen=True)
class FLHC(FedAvg):
    """FL+HC: a few rounds of FedAvg, then hierarchical clustering of the clients' updates.

    All clients train in `warmup_rounds` rounds of FedAvg on one model f32[d], then once more for
    their updates f32[C, d]. Agglomerative clustering with `metric` and `linkage` merges clusters up
    to the distance `threshold`, in units of `unit`. FedAvg by `average` runs inside the clusters,
    at most `max_clusters`, from then on. `similarity = "sketch"` compares sketches of the updates.
    """

    first_clusters = OneCluster()
    compares_all = True

    warmup_rounds: int = option(
        10, "rounds of FedAvg with all clients before the clustering", low=0, search=(1, 3, 5, 10)
    )
    metric: str = option("l1", "distance of updates", choices=("l1", "l2", "cosine"))
    linkage: str = option(
        "complete", "distance of clusters", choices=("complete", "average", "single", "ward")
    )
    threshold: float = option(
        0.9,
        "distance above which clusters are not merged",
        low=0.0,
        traced=True,
        search=(0.3, 1.5, "linear"),
    )
    unit: str = option(
        "median",
        "unit of the threshold: the median distance of two clients, or 1",
        choices=("median", "absolute"),
    )
    max_clusters: int = option(32, "largest number of clusters; more are an error", low=1)
    similarity: str = similarity()

    @property
    def draw(self) -> WarmUp:
        """Let all clients take part before the clustering."""
        return WarmUp(self.warmup_rounds)

    def check(self, where: str) -> None:
        """Raise SpecError for options that contradict each other."""
        if self.linkage == "ward" and self.metric != "l2":
            raise SpecError(
                f'{where}.linkage = "ward": is defined for metric = "l2" only, not "{self.metric}"'
            )
        if self.similarity == "sketch" and self.metric == "l1":
            raise SpecError(
                f'{where}.similarity = "sketch": keeps metric = "l2" and "cosine", not "l1"'
            )

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the one round after which clients are clustered."""
        return (self.warmup_rounds,)

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Let all clients train once more from the global model, and cluster their
        updates."""
        ids = ask.present_clients()
        if not len(ids):
            # Nobody has training data
            return state
        updates = ask.updates(np.asarray(state.models[0]), ids, similarity=self.similarity)
        distances = host.distance_matrix(updates, METRICS[self.metric])
        threshold = float(ask.hyper["threshold"])
        own = self.cluster(updates, distances, threshold)
        return ask.divide(state, ids, own, f"raise it, or threshold = {threshold:g}")

    def cluster(self, updates: np.ndarray, distances: np.ndarray, threshold: float) -> np.ndarray:
        """HOST. Cluster the updates f32[n, d], i32[n].

        Args:
          updates: f32[n, d] the updates.
          distances: f64[n, n] their distances.
          threshold: The distance above which clusters are not merged, in the option's `unit`.
        """
        threshold = host.scale_threshold(threshold, distances, self.unit)
        # Ward's linkage is of points, all others are of distances
        points, metric = distances, "precomputed"
        if self.linkage == "ward":
            points, metric = updates, "euclidean"
        labels = host.agglomerative(
            points, distance_threshold=threshold, linkage=self.linkage, metric=metric
        )
        return host.settle_noise(updates, labels)
