"""FedClust (Islam et al. 2024): one clustering of the clients by the last layers of their locally trained models, then FedAvg
inside the clusters.

Before the first round every client trains from w_0. Hierarchical clustering of the distances between the clients' last layers,
cut at a threshold, finds the clusters, which all begin at w_0. A client that arrives late trains in the same way and joins the
cluster with the nearest mean; a newcomer, too.

Readings. We have read the abstract and summaries of the paper, not its text, and there is no program of its authors:
- What is compared. Paper: weights of the last layer. Here: its kernel. Option: `compare`.
- Clustering. Paper: agglomerative, of a matrix of distances. Here: Euclidean ones, with average linkage. Option: `linkage`.
- Threshold. Paper: a number that makes models more global or more personal. Here: in units of the median distance of two clients.
  Option: `threshold`, `unit = "absolute"`.
- Length of the first training. Paper: not in what we have read. Here: ten epochs. Option: `pretrain_epochs`.
- Weights inside a cluster. Paper: by samples. Here: the same. Option: `average`.

Communication per participant and round: one model down, one update up; and once for each client, when it arrives, one model down
and its update up, of which the last layer would do.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.kernels import host
from cfljax.methods.fedavg import FedAvg
from cfljax.methods.fl_hc import cluster
from cfljax.methods.sr_fca import nearest
from cfljax.round.recipes import Before, Begun, compared_columns, entry, mark_slots, option

PAPER = "Islam et al. 2024"


@dataclasses.dataclass(frozen=True)
class FedClust(FedAvg):
    """FedClust: one clustering by the last layers of locally trained models."""

    joins_on_arrival, compares_all = True, True

    pretrain_epochs: int = option(10, "local epochs before the clustering", low=1)
    compare: str = option("last", 'kernel of the last dense layer, or "head", "whole", or a prefix of parameter paths')
    linkage: str = option("average", "distance of clusters", choices=("average", "complete", "single", "ward"))
    threshold: float = option(0.9, "distance above which clusters are not merged", low=0.0, traced=True)
    unit: str = option("median", "unit of the threshold: the median distance of two clients, or 1", choices=("median", "absolute"))

    def begin(self, ask: Before) -> Begun:
        """HOST. The clustering."""
        first, later, start = ask.here(), ask.late(), ask.first_model()
        ids, n = np.concatenate([first, later]), len(first)
        columns = compared_columns(self.compare, ask.solver, "method.fedclust")
        layers = np.concatenate([moves[:, columns] for _, moves in ask.updates_in_parts(start, ids, epochs=self.pretrain_epochs)])
        layers = np.where(np.isfinite(layers).all(axis=1, keepdims=True), layers, 0.0)
        own = cluster(layers[:n], host.distance_matrix(layers[:n]), float(ask.hyper["threshold"]), self.unit, self.linkage)
        active = mark_slots(int(own.max()) + 1)
        joined = nearest(layers[n:], host.cluster_means(layers[:n], own)[1])
        labels, guess = ask.of_all((first, own)), ask.of_all((first, own), (later, joined))
        return Begun(np.tile(start, (len(active), 1)), labels, guess, active, extras={"found": np.array(own.max() + 1)})


fedclust = entry("fedclust", FedClust)
