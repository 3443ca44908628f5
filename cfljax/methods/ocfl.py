"""OCFL, OPTICS-based clustering optimisation (Lu et al. 2022): all clients train one epoch from the
same model, OPTICS clusters their weights without being given a number of clusters, and FedAvg runs
inside the clusters from then on. (`ocfl_zuziak` is another method that its authors call OCFL.)

1. All clients train `pretrain_epochs` epochs from w_0; the server flattens their weights.
2. OPTICS, once, on the host. Where it finds no cluster, everybody is in one, with a warning.
3. Noise points join a cluster, or are clusters of their own. Kept with the results: `ari` against
   the true groups at this point, `ari_optics` with every noise point as a cluster of its own,
   `found` clusters and `noise` points.
4. While there are more than `merge_to` clusters, the two most similar ones become one, by their
   mean weights.
5. FedAvg inside each cluster: each round draws `clients_per_cluster` clients of each (all, where it
   has fewer), so `train.participation` has no effect; `train.dropout` and `train.stragglers` act on
   the clients drawn. A client that arrives late trains as in step 1 and joins the cluster with the
   most similar mean weights.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, CLUSTERS_FROM_W0, About, Reading
from cfljax.round.recipes import (
    Ask,
    Before,
    InitialClusters,
    OnArrival,
    PerCluster,
    RoundResult,
    State,
    every,
    mark_slots,
    option,
)
from cfljax.round.similarity import similarity, sketch_on_host_if
from cfljax.types import Array, Quantity

ABOUT = About(
    title="OCFL",
    family="clustered",
    authors="Lu et al.",
    year=2022,
    paper="Federated learning based on OPTICS clustering optimization",
    venue="Discrete Dynamics in Nature and Society",
    link="https://doi.org/10.1155/2022/7151373",
    communication="one model down, one update up; and for each client once, when it arrives, one "
    "model down and its weights up",
)
READINGS = (
    Reading(
        "Length of the first training",
        paper='clients "get fully trained" (section 3); one epoch in the experiments',
        here="one epoch",
        option="pretrain_epochs",
    ),
    Reading(
        "Noise points",
        paper="may be malicious nodes, whose effects OPTICS strips out; not what becomes of them",
        here="each joins the cluster whose mean weights are most similar by cosine",
        option='noise = "isolate"',
    ),
    Reading(
        "Distance",
        paper="OPTICS's default on the weights; its argument uses cosines",
        here="Euclidean",
        option='metric = "cosine"',
    ),
    Reading(
        "Merging",
        paper='ten clusters into three, by cosine, to "artificially reduce the number of clusters"',
        here="only if asked",
        option=("merge_to", 'merge_by = "updates"'),
    ),
    Reading(
        "Re-clustering",
        paper="none",
        here="none, or every few rounds (`round/recluster.py`); clusters beyond `max_clusters` "
        "merge as in step 4",
        option=("every", "max_clusters"),
    ),
    CLUSTERS_FROM_W0,
    BY_SAMPLES,
    Reading(
        "Participants",
        paper="m random clients per cluster",
        here="ten",
        option="clients_per_cluster",
    ),
)


@dataclasses.dataclass(frozen=True)
class OCFL(FedAvg):
    """OCFL: clusters found once by OPTICS on the weights after one local epoch.

    Before the first round all clients train `pretrain_epochs` epochs from w_0, and OPTICS with
    `min_samples`, `xi` and `metric` clusters their weights f32[C, d]. Noise points are assigned as
    `noise` says, and the most similar clusters are merged down to `merge_to`, by mean weights or
    updates (`merge_by`). In a round each cluster draws `clients_per_cluster` participants, and
    FedAvg by `average` trains its model.

    `every` repeats the clustering every so many rounds, with at most `max_clusters` clusters, and
    `similarity = "sketch"` clusters sketches of the weights.
    """

    diagnostics = {
        "participants": Quantity("participants of the round"),
        "found": Quantity("clusters that were found"),
        "noise": Quantity("clients that OPTICS put into no cluster"),
        "ari": Quantity("adjusted Rand index of what was found"),
        "ari_optics": Quantity("adjusted Rand index of OPTICS, noise as single clients"),
    }
    joining = OnArrival()
    compares_all = True
    pairs = 0

    pretrain_epochs: int = option(1, "local epochs before the clustering", low=1)
    min_samples: int = option(2, "OPTICS: neighbours of a core point", low=2)
    xi: float = option(
        0.2,
        "OPTICS: steepness that bounds a cluster",
        low=0.0,
        high=1.0,
        search=(0.05, 0.3, "linear"),
    )
    metric: str = option(
        "euclidean", "OPTICS: distance of the weights", choices=("euclidean", "cosine")
    )
    noise: str = option("nearest", "how noise points are assigned", choices=("nearest", "isolate"))
    merge_to: int | None = option(None, "merge similar clusters down to this number", low=1)
    merge_by: str = option(
        "weights",
        "merge clusters by their mean weights, or updates",
        choices=("weights", "updates"),
    )
    clients_per_cluster: int = option(
        10, "participants per round and cluster (train.participation is not used)", low=1
    )
    every: int | None = every()
    max_clusters: int = option(16, "largest number of clusters with `every`", low=1)
    similarity: str = similarity()

    @property
    def draw(self) -> PerCluster:
        """Draw clients inside each cluster."""
        return PerCluster(self.clients_per_cluster)

    def check(self, where: str) -> None:
        """Raise SpecError for options that contradict each other."""
        if self.every is None and self.max_clusters != OCFL.max_clusters:
            raise SpecError(
                f"{where}.max_clusters = {self.max_clusters}: needs `every`; leave it out"
            )

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. OPTICS of everybody's trained weights; who comes late joins the nearest cluster."""
        first = ask.clients_to_cluster()
        later = ask.late_clients()
        start = ask.first_model()
        ids = np.concatenate([first, later])
        n = len(first)
        moves = ask.updates(start, ids, epochs=self.pretrain_epochs, similarity=self.similarity)
        weights = sketch_on_host_if(start[None], self.similarity) + moves
        own, extras = self.cluster(weights[:n], moves[:n], np.asarray(ask.federation.group)[first])
        known = np.concatenate([own, np.full(len(later), -1)])
        nearest = host.nearest_mean_cosine(weights, known, np.arange(n, n + len(later)))
        labels = ask.labels_from_pairs((first, own))
        joining = ask.labels_from_pairs((first, own), (later, nearest))
        rows = self.max_clusters if self.every is not None else len(mark_slots(int(own.max()) + 1))
        return InitialClusters(np.tile(start, (rows, 1)), labels, joining, extras=extras)

    def cluster(
        self, weights: np.ndarray, moves: np.ndarray, group: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """HOST. Steps 2 to 4 on weights f32[n, d] and how they have moved:
        (i32[n] labels, what is kept with the results). group i32[n]: the true ones, for the
        record."""
        raw = host.optics(weights, self.min_samples, self.xi, self.metric)
        if (raw < 0).all():
            warnings.warn("ocfl: OPTICS found no cluster; all clients are in one", stacklevel=2)
        labels = host.settle_noise(weights, raw, self.noise)
        alone = host.settle_noise(weights, raw, "isolate")
        index = {"ari": _rand_index(labels, group), "ari_optics": _rand_index(alone, group)}
        found = index | {"found": labels.max() + 1, "noise": np.sum(raw < 0)}
        wanted = self.merge_to
        if self.every is not None:
            wanted = min(wanted or self.max_clusters, self.max_clusters)
        if wanted is not None:
            labels = host.merge_to(weights if self.merge_by == "weights" else moves, labels, wanted)
        return labels, {name: np.array(value, np.float32) for name, value in found.items()}

    def compute_diagnostics(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> dict[str, Array]:
        """Return the number of participants, which depends on the sizes of the clusters."""
        return {"participants": jnp.sum(ask.cohort.mask, dtype=jnp.int32)}


def _rand_index(labels: np.ndarray, group: np.ndarray) -> float:
    from sklearn.metrics import adjusted_rand_score

    known = (labels >= 0) & (group >= 0)
    return adjusted_rand_score(group[known], labels[known]) if known.any() else np.nan
