"""One-shot K-means (Ghosh et al. 2019, "Robust federated learning in a heterogeneous environment"):
every client first trains alone from w_0 until it has converged. K-means on the trained weights then
finds the clusters, and all rounds are FedAvg inside them.

A client that arrives late trains in the same way and joins the nearest centre; so does one whose
weights are not finite (the first centre).
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from cfljax.devices.compiled import quick_jit
from cfljax.errors import SpecError
from cfljax.kernels.choose import nearest
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.mix import members
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import CLUSTERS_FROM_W0, About, Reading
from cfljax.round.recipes import Before, InitialClusters, OnArrival, option, similarity
from cfljax.types import Array

ABOUT = About(
    title="One-shot K-means",
    family="clustered",
    authors="Ghosh et al.",
    year=2019,
    paper="Robust federated learning in a heterogeneous environment",
    venue="arXiv",
    link="https://arxiv.org/abs/1906.06629",
    communication="one model down, one update up; and for each client once, when it arrives, one "
    "model down and its weights up",
)
READINGS = (
    Reading(
        "Length of the first training",
        paper="until the local loss is minimal",
        here="ten epochs",
        option="pretrain_epochs",
    ),
    CLUSTERS_FROM_W0,
    Reading(
        "Training inside clusters",
        paper="a Byzantine-robust mean",
        here="the mean; `train.robust` has medians and trimmed means",
        option=("average", "train.robust"),
    ),
    Reading(
        "K-means",
        paper="any algorithm, or a trimmed one",
        here="K-means++ with 10 restarts and at most 300 iterations",
    ),
)


@dataclasses.dataclass(frozen=True)
class OneShot(FedAvg):
    """One-shot K-means: clusters found once by K-means on locally trained weights.

    Before the first round every client trains `pretrain_epochs` epochs from w_0. K-means of the
    trained weights f32[C, d] makes the `clusters` clusters, and all rounds are FedAvg by `average`
    inside them. `similarity = "sketch"` clusters sketches of the weights.
    """

    compares_all = True
    pairs = 0

    clusters: int = option(3, "number of clusters", low=1, search=(2, 3, 4, 6))
    pretrain_epochs: int = option(10, "local epochs before the clustering", low=1)
    similarity: str = similarity()
    labels: tuple[int, ...] | None = option(
        None,
        "the cluster of each client, from 0 on, in place of the clustering",
        low=0,
    )

    @property
    def reveals(self) -> str:
        """What is revealed of the participants without noise; "": nothing, if labels are given."""
        return "" if self.labels else super().reveals

    @property
    def joining(self) -> OnArrival:
        """Let clients that come late join then; without given labels they have trained for it."""
        return OnArrival(trains=self.labels is None)

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. K-means of everybody's trained weights; only clients that are there from the start
        decide where the centres are."""
        if self.labels is not None:
            return self._begin_from(ask, np.array(self.labels, np.int32))
        first, start = ask.clients_to_cluster(), ask.first_model()
        ids = np.concatenate([first, ask.late_clients()])
        moves = ask.updates(start, ids, epochs=self.pretrain_epochs, similarity=self.similarity)
        there = np.arange(len(ids)) < len(first)
        found = np.asarray(_find(ask.fold("one_shot"), moves, there, ask.uid[ids], self.clusters))
        labels = ask.labels_from_pairs((first, found[there]))
        joining = ask.labels_from_pairs((ids, found))
        return InitialClusters(np.tile(start, (self.clusters, 1)), labels, joining)

    def _begin_from(self, ask: Before, given: np.ndarray) -> InitialClusters:
        """HOST. Begin with these clusters i32[n] of the first n clients, without any training."""
        clients = int(np.asarray(ask.federation.real).sum())
        if len(given) != clients:
            raise SpecError(
                f"method.one_shot.labels: has {len(given)} clusters, and there are {clients} "
                "clients; give one for each"
            )
        if given.max() >= self.clusters:
            raise SpecError(
                f"method.one_shot.labels: has cluster {given.max()}, and clusters = "
                f"{self.clusters} are 0 to {self.clusters - 1}; give clusters = {given.max() + 1}"
            )
        ids = np.arange(clients)
        now = ask.present_clients()
        joining = ask.labels_from_pairs((ids, given))
        labels = ask.labels_from_pairs((now, joining[now]))
        if ask.model.first_models is not None:
            models = np.asarray(ask.model.first_models(ask.key, self.clusters))
        else:
            models = np.tile(ask.first_model(), (self.clusters, 1))
        return InitialClusters(models, labels, joining)


@functools.partial(quick_jit, static=(4,))
def _find(key: Array, moves: Array, there: Array, uid: Array, clusters: int) -> Array:
    """Return i32[n]: the clusters of the updates f32[n, d]; only clients that are there bool[n]
    decide where the centres are."""
    found = kmeans(key, moves, clusters, there, uid)
    used = members(found.labels, clusters).any(axis=1)
    used = used.at[0].set(used[0] | ~used.any())
    return jnp.where(found.labels >= 0, found.labels, nearest(moves, found.centres, used))
