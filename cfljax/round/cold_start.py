"""FedGroup's group cold start (Algorithm 3), on the host: the clients that pre-train for it, the
groups of their updates, and the directions with which the updates of newcomers are compared."""

from __future__ import annotations

import functools

import numpy as np

from cfljax.devices.compiled import quick_jit
from cfljax.kernels import host
from cfljax.kernels.cosine import cosine_matrix, madc
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.spectral import edc_between, edc_embedding
from cfljax.lazy import jax, jnp
from cfljax.types import Array

COLD_STARTS = ("edc", "madc", "rcc")


def first_groups(
    key: Array, delta: np.ndarray, uid: np.ndarray, clusters: int, cold_start: str, snapshots: bool
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """HOST. Group cold start (Algorithm 3) from the updates `delta` f32[n, d] of the pre-trained
    clients with identities `uid` i32[n]: (i32[n] the group of each of them, −1 if its update is not
    finite; the arrays to save with the results, if `snapshots`)."""
    with jax.default_matmul_precision("highest"):
        compared = _compare(key, delta, uid, clusters, cold_start, snapshots)
        seen = {name: np.asarray(a) for name, a in compared.items()}
    usable = seen["usable"]
    found = np.arange(delta.shape[0])
    if cold_start == "edc":
        found = seen["groups"]
    elif cold_start == "madc":
        found[usable] = host.agglomerative(seen["madc"][np.ix_(usable, usable)], clusters=clusters)
    kept = {name: seen[name] for name in ("edc", "madc")} if snapshots else {}
    return np.where(usable, found, -1).astype(np.int32), kept


@functools.partial(quick_jit, static=(3, 4, 5))
def _compare(
    key: Array, delta: Array, uid: Array, groups: int, cold_start: str, snapshots: bool
) -> dict[str, Array]:
    """Return the part of the cold start that is compiled, as arrays by name. "usable" bool[n]:
    which updates are finite. With "edc", "groups" i32[n]: the groups by K-means++ on the cosines of
    the updates with their leading directions, so that eq. 8 is the distance. With "madc", "madc"
    f32[n, n]: the matrix of eq. 7."""
    seen = {"usable": jnp.isfinite(delta).all(axis=1)}
    points = edc_embedding(delta, groups) if cold_start == "edc" or snapshots else delta
    if cold_start == "edc":
        seen["groups"] = kmeans(
            key, points, groups, seen["usable"], jnp.asarray(uid), restarts=10, max_iter=20
        ).labels
    if cold_start == "madc" or snapshots:
        # eq. 7
        seen["madc"] = madc(cosine_matrix(delta, mask=seen["usable"]), seen["usable"])
    if snapshots:
        # eq. 8
        seen["edc"] = edc_between(points)
    return seen
