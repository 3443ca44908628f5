"""FedAvg inside clusters that a clustering on the host has made. A client that arrives later joins, in the first round that it
takes part in, the cluster whose model has the least loss on its training data, and stays there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.federation.cohort import present
from cfljax.kernels.choose import least_loss
from cfljax.lazy import jnp
from cfljax.local.solver import Solver
from cfljax.round.common import traffic, train_clusters
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Traffic

ROUND_UP = 8
"""Numbers of clusters that data decides are rounded up to a multiple of this, so that most seeds share a compiled program."""


class HostClusters(NamedTuple):
    """Places for K clusters, of which some may be unused."""

    models: Array
    """f32[K, d] the model at each place."""
    labels: Array
    """i32[C] the cluster of each client; −1: none yet."""
    active: Array
    """bool[K]: which places hold a cluster."""


def ready_labels(federation: Federation) -> Array:
    """i32[C]: 0 for clients with training data that can take part in round 0, −1 for all others."""
    return jnp.where(present(federation, jnp.int32(0)), 0, -1).astype(jnp.int32)


def join_by_loss(solver: Solver, federation: Federation, found: HostClusters, who: Array) -> Array:
    """i32[C]: the labels, in which each client of `who` bool[C] without a label has got the active cluster with the least loss on
    its training data. Only the data of these clients is evaluated."""
    new = who & (found.labels < 0) & federation.real
    losses = solver.losses(federation, found.models, jnp.arange(federation.clients), new)
    best = least_loss(jnp.where(found.active[:, None], losses, jnp.nan))
    return jnp.where(new, best, found.labels)


def settle(solver: Solver, federation: Federation, cohort: Cohort, found: HostClusters) -> tuple[Array, Array]:
    """(labels i32[C], clusters of the participants i32[S]) after participants without a cluster have joined one."""
    there = jnp.zeros(federation.clients, bool).at[cohort.ids].max(cohort.mask)
    labels = join_by_loss(solver, federation, found, there)
    return labels, jnp.maximum(labels[cohort.ids], 0)  # a masked participant may have none


def with_joining(sent: Traffic, cohort: Cohort, found: HostClusters) -> Traffic:
    """The traffic of a round in which a participant without a label in `found` receives all models in use in place of one."""
    new = jnp.sum(cohort.mask & (found.labels[cohort.ids] < 0), dtype=jnp.int32)
    return sent._replace(vectors_down=sent.vectors_down + new * (jnp.sum(found.active, dtype=jnp.int32) - 1))


def round_inside(
    solver: Solver, key: Array, federation: Federation, cohort: Cohort, found: HostClusters, hyper: Hyper, average: str
) -> tuple[HostClusters, Info]:
    """One round of FedAvg inside each cluster: (the clusters after it, the report on the round)."""
    labels, which = settle(solver, federation, cohort, found)
    sent = with_joining(traffic(cohort), cohort, found)
    models, info = train_clusters(solver, key, federation, cohort, found.models, which, hyper, average, sent)
    return found._replace(models=models, labels=labels), info


def places(clusters: int) -> np.ndarray:
    """HOST. bool[K]: True for the first `clusters` places; K is their number rounded up to a multiple of ROUND_UP."""
    return np.arange(-(-clusters // ROUND_UP) * ROUND_UP) < clusters
