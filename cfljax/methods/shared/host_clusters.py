"""FedAvg inside clusters that the host has found, with clients that come later: they join the cluster with the least loss on
their training data in the first round that they take part in, and stay."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from cfljax.kernels.choose import least_loss
from cfljax.local.rounds import train_clusters
from cfljax.local.solver import Solver
from cfljax.methods.shared.common import traffic
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Traffic

ROUND_UP = 8
"""Numbers of clusters that data decides are rounded up to a multiple of this, so that most seeds share one program."""


class HostClusters(NamedTuple):
    """Clusters, of which some places are not in use."""

    models: Array
    """f32[K, d]."""
    labels: Array
    """i32[C]; −1: none yet."""
    active: Array
    """bool[K]."""


def ready_labels(federation: Federation) -> Array:
    """i32[C]: 0 for clients with training data that are there from the start, −1 for the others."""
    return jnp.where(federation.trains & (federation.arrive == 0), 0, -1).astype(jnp.int32)


def join_by_loss(solver: Solver, federation: Federation, found: HostClusters, who: Array) -> Array:
    """i32[C]: the labels, and for the clients who bool[C] without one the active cluster with the least loss on their
    training data. The work is that of the clients without a label."""
    new = who & (found.labels < 0) & federation.real
    losses = solver.losses(federation, found.models, jnp.arange(federation.clients), new)
    best = least_loss(jnp.where(found.active[:, None], losses, jnp.nan))
    return jnp.where(new, best, found.labels)


def settle(solver: Solver, federation: Federation, cohort: Cohort, found: HostClusters) -> tuple[Array, Array]:
    """(labels i32[C], which i32[S]) once every participant has a cluster."""
    there = jnp.zeros(federation.clients, bool).at[cohort.ids].max(cohort.mask)
    labels = join_by_loss(solver, federation, found, there)
    return labels, jnp.maximum(labels[cohort.ids], 0)  # a masked participant may have none


def with_joining(sent: Traffic, cohort: Cohort, found: HostClusters) -> Traffic:
    """The traffic of a round before which participants had the labels of `found`: who has none gets all models in use."""
    new = jnp.sum(cohort.mask & (found.labels[cohort.ids] < 0), dtype=jnp.int32)
    return sent._replace(vectors_down=sent.vectors_down + new * (jnp.sum(found.active, dtype=jnp.int32) - 1))


def round_inside(
    solver: Solver, key: Array, federation: Federation, cohort: Cohort, found: HostClusters, hyper: Hyper, average: str
) -> tuple[HostClusters, Info]:
    """A round of FedAvg inside each cluster."""
    labels, which = settle(solver, federation, cohort, found)
    sent = with_joining(traffic(cohort), cohort, found)
    models, info = train_clusters(solver, key, federation, cohort, found.models, which, hyper, average, sent)
    return found._replace(models=models, labels=labels), info


def places(clusters: int) -> np.ndarray:
    """HOST. bool[K]: this number of them in use, K rounded up."""
    return np.arange(-(-clusters // ROUND_UP) * ROUND_UP) < clusters
