"""FedClust (Islam et al. 2024): one clustering by the last layers of locally trained models, before
the first round, then FedAvg inside the clusters.

Every client that is there trains some epochs from w_0 and sends the weights of its last layer only.
The server makes the matrix of their Euclidean distances, and agglomerative clustering merges
clusters up to a threshold. All train from the same weights, so the distance of two clients' updates
is that of their weights.

A client that arrives later trains in the same way, and joins the cluster whose members' mean
weights are nearest. One whose weights are not finite joins the first cluster.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.kernels import host
from cfljax.methods.fedavg import FedAvg
from cfljax.methods.sr_fca import nearest
from cfljax.round.about import BY_SAMPLES, CLUSTERS_FROM_W0, About, Reading
from cfljax.round.recipes import (
    Before,
    InitialClusters,
    OnArrival,
    compared_columns,
    mark_slots,
    option,
)

ABOUT = About(
    title="FedClust",
    family="clustered",
    authors="Islam et al.",
    year=2024,
    paper="FedClust: optimizing federated learning on non-IID data through weight-driven client "
    "clustering",
    venue="IPDPS workshops",
    link="https://doi.org/10.1109/IPDPSW63119.2024.00200",
    communication="one model down, one update up; and for each client once, when it arrives, one "
    "model down and the weights of its last layer up",
)
READINGS = (
    Reading(
        "Length of the first training",
        paper="some local epochs",
        here="five",
        option="pretrain_epochs",
    ),
    Reading(
        "Last layer",
        paper="its weights",
        here="its weights and biases",
        option='compare = "last"',
    ),
    Reading("Linkage", paper="not said", here="average", option="linkage"),
    Reading(
        "Threshold",
        paper="a distance λ, chosen for each data set",
        here="in units of the median distance of two clients, because distances grow with the "
        "model, the learning rate and the epochs",
        option='unit = "absolute"',
    ),
    CLUSTERS_FROM_W0,
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class FedClust(FedAvg):
    """FedClust: clusters found once, by the last layers of locally trained models.

    Before the first round every client trains `pretrain_epochs` epochs from w_0, and sends the p
    weights f32[C, p] that `compare` names. Agglomerative clustering of their Euclidean distances
    with `linkage` merges clusters up to the distance `threshold`, in units of `unit`. All rounds
    are FedAvg by `average` inside the clusters.
    """

    joining = OnArrival()
    compares_all = True

    pretrain_epochs: int = option(5, "local epochs before the clustering", low=1)
    compare: str = option(
        "head", 'the last dense layer, or "last", its kernel, "whole", or a prefix of paths'
    )
    linkage: str = option(
        "average", "distance of clusters", choices=("average", "complete", "single", "ward")
    )
    threshold: float = option(
        0.7,
        "distance above which clusters are not merged",
        low=0.0,
        traced=True,
        search=(0.3, 1.0, "linear"),
    )
    unit: str = option(
        "median",
        "unit of the threshold: the median distance of two clients, or 1",
        choices=("median", "absolute"),
    )

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. Cluster the clients that are there; later ones join the nearest cluster."""
        first, late, start = ask.clients_to_cluster(), ask.late_clients(), ask.first_model()
        part = compared_columns(self.compare, ask.solver, "method.fedclust")
        weights = ask.updates(
            start, np.concatenate([first, late]), epochs=self.pretrain_epochs, part=part
        )
        known, new = np.split(weights, [len(first)])
        threshold = host.scale_threshold(
            float(ask.hyper["threshold"]), host.distance_matrix(known), self.unit
        )
        found = host.agglomerative(
            known, distance_threshold=threshold, linkage=self.linkage, metric="euclidean"
        )
        # One that is not finite has label −1
        own = np.maximum(found, 0)
        joining = np.zeros(len(new), np.int32)
        finite = np.isfinite(new).all(axis=1)
        joining[finite] = nearest(new[finite], host.cluster_means(known, own)[1])
        active = mark_slots(int(own.max()) + 1)
        return InitialClusters(
            np.tile(start, (len(active), 1)),
            ask.labels_from_pairs((first, own)),
            ask.labels_from_pairs((late, joining)),
            active,
        )
