"""FLUX (Fenoglio et al. 2025): FedAvg with all clients for some rounds, one clustering by
descriptors of the clients' data, and FedAvg inside the clusters.

The inputs of the global model's last layer are projected on as many directions as there are
classes, the leading ones of 200 random points. A client's descriptor has their means and standard
deviations over all its samples, and over each label's; each of these parts is scaled to [0, 1] over
the clients. DBSCAN joins clients whose distance is at most the elbow of the distances to the
nearest other client; one that it leaves alone is a cluster. A client that comes later joins the
cluster with the nearest mean of the two parts for which it needs no labels, when it first takes
part.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.methods.pacfl import client_samples
from cfljax.methods.sr_fca import nearest
from cfljax.models.features import split_features
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import Ask, Before, Joining, OneCluster, State, option
from cfljax.types import Array

ABOUT = About(
    title="FLUX",
    family="clustered",
    authors="Fenoglio et al.",
    year=2025,
    paper="FLUX: efficient descriptor-driven clustered federated learning under arbitrary "
    "distribution shifts",
    venue="NeurIPS",
    link="https://neurips.cc/virtual/2025/loc/san-diego/poster/116099",
    communication="one model down, one update up; once, for each client, its descriptor and "
    "largest input. A client that comes later also gets the model of the "
    "clustering, and sends the part of its descriptor that needs no labels",
)
READINGS = (
    Reading(
        "When",
        paper="its program clusters after the third round or later, when validation accuracy "
        "rises by less than 0.06 in a round",
        here="after a number of rounds",
        option="cluster_after",
    ),
    Reading(
        "Samples",
        paper="its program keeps a fifth of them for validation",
        here="all that train",
    ),
    Reading(
        "Random points",
        paper="in its program from 0 to 1.02 times the largest input in the last evaluation",
        here="the largest input of these samples",
    ),
    Reading(
        "Label with fewer than two samples",
        paper="−1 in its program",
    ),
    Reading(
        "Elbow",
        paper="its program calls kneed and names no version",
        here="kneed's rule until 0.8.5; 0.9.0 has another, which finds no elbow between a local "
        "minimum and the next maximum. A tie is not below the threshold, as in exact "
        "numbers; in kneed rounding decides",
    ),
    Reading(
        "No elbow",
        paper="its program fails",
        here="the largest distance",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class Flux(FedAvg):
    """FLUX: one clustering by descriptors of what clients' data give to the last layer.

    After `cluster_after` rounds of FedAvg each client describes its data by means and deviations of
    the last layer's inputs, over all samples and over each label's: a row of f64[C, 2, M + 1, L],
    where L is the number of directions. DBSCAN of the descriptors finds the clusters, at most
    `max_clusters`, and FedAvg by `average` runs inside them from then on.
    """

    first_clusters = OneCluster()
    joining = Joining(trains=False)
    compares_all = True
    places_unlabelled = True
    reveals = "the clustering by means and deviations of features"

    cluster_after: int = option(3, "rounds of FedAvg before the clustering", low=1)
    max_clusters: int = option(32, "largest number of clusters; more are an error", low=1)

    def check_labels(self, where: str) -> None:
        """Raise SpecError: descriptors need one label for each sample."""
        raise SpecError(
            f'method.name = "{where.removeprefix("method.")}": describes samples by label, '
            "so they need one class each"
        )

    def first(self, ask: Ask, state: State) -> State:
        """Let all join the first cluster. `memory` i32[]: how many numbers a client sends to join;
        0 before the clustering."""
        everybody = jnp.zeros_like(state.labels)
        return state._replace(labels_if_joining=everybody, floats=jnp.int32(0), memory=jnp.int32(0))

    def join(self, ask: Ask, state: State) -> Array:
        """Return i32[S]: the nearest clusters, for which a client describes its data by the model
        of the clustering."""
        ask.download(state.models, each=jnp.sign(state.memory))
        ask.upload(1, each=state.memory)
        return super().join(ask, state)

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the one round after which clients are clustered."""
        return (self.cluster_after,) if self.cluster_after < rounds else ()

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Cluster the clients by their descriptors."""
        ids = ask.present_clients()
        late = ask.late_clients()
        n = len(ids)
        descriptors = describe(ask, np.asarray(state.models[0]), np.concatenate([ids, late]), n)
        if not n:
            # Nobody has training data
            return state
        # Each part in [0, 1] over the clients that are there
        least, most = (of(descriptors[:n], axis=(0, 3), keepdims=True) for of in (np.min, np.max))
        descriptors = (descriptors - least) / np.where(most > least, most - least, 1.0)
        own = cluster_by_elbow(descriptors[:n].reshape(n, -1))
        # A client that comes later joins by the parts for which it needs no labels
        unlabelled = descriptors[:, :, 0].reshape(len(descriptors), -1)
        joins = nearest(unlabelled[n:], host.cluster_means(unlabelled[:n], own)[1])
        return ask.divide(state, ids, own)._replace(
            labels_if_joining=jnp.asarray(ask.labels_from_pairs((ids, own), (late, joins))),
            # A descriptor, and the largest input
            floats=jnp.int32(n * (descriptors[0].size + 1)),
            memory=jnp.int32(unlabelled.shape[1]),
        )


def cluster_by_elbow(points: np.ndarray) -> np.ndarray:
    """HOST. Cluster points f64[n, m] by DBSCAN whose radius is the elbow of the distances to the
    nearest other point, i64[n]. A point that it leaves alone is a cluster of its own."""
    from sklearn.cluster import DBSCAN

    n = len(points)
    distances = host.distance_matrix(points)
    closest = np.ones(1)
    if n > 1:
        others = np.where(np.eye(n, dtype=bool), np.inf, distances)
        closest = np.sort(others.min(axis=1))
    # DBSCAN refuses a radius of 0, as of equal clients
    radius = max(closest[host.elbow(closest)], 1e-12)
    found = DBSCAN(radius, min_samples=2, metric="precomputed").fit_predict(distances)
    alone = found < 0
    found[alone] = found.max() + 1 + np.arange(alone.sum())
    return host.renumber_by_appearance(found)


def describe(ask: Before, w: np.ndarray, ids: np.ndarray, n: int) -> np.ndarray:
    """HOST. Describe clients by means and deviations of the projected inputs of the last layer,
    f64[C, 2, M + 1, L]: over all samples, and over the samples of each of M labels.

    Args:
      ask: The clients' data.
      w: f32[d] the model.
      ids: i[C] the clients.
      n: How many of these, the first ones, decide where the centre of the projection is.
    """
    both, width = split_features(ask.model)
    params = ask.model.unravel(jnp.asarray(w))
    labels = ask.federation.classes
    # The directions are the same in all runs
    random = np.random.RandomState(1).uniform(size=(200, width))
    axes = np.linalg.svd(random - random.mean(axis=0), full_matrices=False)[2][:labels]
    # The largest entry of each is positive: a decomposition leaves the sign open
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    projected = [
        (z @ axes.T, y, z.max(initial=0.0))
        for z, y in client_samples(ask.federation, ids, lambda x: both(params, x)[0])
    ]
    largest = max((most for *_, most in projected[:n]), default=0.0)
    centre = 1.02 * largest * random.mean(axis=0) @ axes.T
    out = np.full((len(ids), 2, labels + 1, len(axes)), -1.0)
    for row, (points, y, _) in zip(out, projected, strict=True):
        of_labels = [points[y == label] for label in range(labels)]
        for part, some in enumerate([points, *of_labels]):
            # A label needs two samples, all samples together need one
            if len(some) > (part > 0):
                row[0, part] = (some - centre).mean(axis=0)
                row[1, part] = some.std(axis=0)
    return out
