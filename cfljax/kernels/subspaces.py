"""HOST. Angles between the subspaces of the clients' data, as PACFL compares them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# A cosine this close to 1 differs by rounding only: the directions are the same
COSINE_ROUNDING = 1e-12
RIGHT_ANGLE = 90.0


class Subspaces(NamedTuple):
    """The leading directions of n clients' data, for each label or of all samples together."""

    # f64[n, L, p, F] orthonormal rows, zero where there are no more directions; L = 1 without
    # labels
    bases: np.ndarray
    # bool[n, L]: whether the client has samples with this label
    held: np.ndarray


def concatenate(first: Subspaces, more: Subspaces) -> Subspaces:
    """Return the subspaces of the clients of both, the first ones first."""
    return Subspaces(
        np.concatenate([first.bases, more.bases]), np.concatenate([first.held, more.held])
    )


def nearest_clusters(sent: Subspaces, own: np.ndarray, how: str, linkage: str) -> np.ndarray:
    """Return i32[m]: the nearest cluster of each of the last m clients.

    Args:
      sent: The subspaces of n + m clients.
      own: i[n] the clusters of the first n.
      how: The distance of two clients, as in `distances`.
      linkage: The distance of a client to a cluster: the mean of the distances to its members
        (`"average"`, `"weighted"`), their maximum (`"complete"`) or minimum (`"single"`).
    """
    to_known = distances(sent, how)[len(own) :, : len(own)]
    parts = [to_known[:, own == k] for k in range(int(own.max()) + 1)]
    to_each = {
        "weighted": [part.mean(axis=1) for part in parts],
        "average": [part.mean(axis=1) for part in parts],
        "complete": [part.max(axis=1) for part in parts],
        "single": [part.min(axis=1) for part in parts],
    }[linkage]
    return np.argmin(np.stack(to_each, axis=1), axis=1).astype(np.int32)


def leading(x: np.ndarray, p: int) -> np.ndarray:
    """Return f64[p, F] the p leading right singular vectors of x f64[n, F]; zero rows if there are
    fewer."""
    out = np.zeros((p, x.shape[1]))
    n, features = x.shape
    if min(n, features) == 0:
        return out
    # The eigenvectors of the smaller Gram matrix, the largest first, and their singular values
    if features <= n:
        rows = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :p].T
        strength = np.linalg.norm(x @ rows.T, axis=0)
    else:
        rows = np.linalg.eigh(x @ x.T)[1][:, ::-1][:, :p].T @ x
        strength = np.linalg.norm(rows, axis=1)
    # Products lose half of the digits: what is weaker than this is rounding
    real = strength > 1e-6 * max(strength[0], np.finfo(np.float64).tiny)
    q = np.linalg.qr(rows[real].T)[0].T if real.any() else rows[:0]
    out[: len(q)] = q
    return out


def distances(sent: Subspaces, how: str) -> np.ndarray:
    """Return f64[n, n] degrees between the clients: the mean over labels that either has. `how`:
    `"vectors"`, the smallest angle between any two vectors; `"labels"`, the smallest principal
    angle for each label; otherwise as in `angles`."""
    if how == "vectors":
        return _closest_vectors(sent)
    n, labels, p, _ = sent.bases.shape
    how = "smallest" if how == "labels" else how
    orthogonal = RIGHT_ANGLE if how == "smallest" else RIGHT_ANGLE * p
    total = np.zeros((n, n))
    counted = np.zeros((n, n))
    for k in range(labels):
        held = sent.held[:, k]
        has = np.flatnonzero(held)
        counted += held[:, None] | held[None, :]
        # A label that only one of two clients has is as far away as can be
        part = np.where(held[:, None] ^ held[None, :], orthogonal, 0.0)
        part[np.ix_(has, has)] = angles(sent.bases[has, k], how)
        total += part
    mean = total / np.maximum(counted, 1)
    np.fill_diagonal(mean, 0.0)
    return mean


def angles(bases: np.ndarray, how: str) -> np.ndarray:
    """Return f64[n, n] degrees between bases f64[n, p, F]: the `"smallest"` principal angle of
    their row spaces, the `"sum"` of all p, or (`"trace"`) the sum of the angles between the k-th
    rows of both, k = 1 … p."""
    n, p, features = bases.shape
    flat = bases.reshape(n * p, features)
    inner = (flat @ flat.T).reshape(n, p, n, p).transpose(0, 2, 1, 3)
    if n == 0:
        return np.zeros((0, 0))
    # The singular values of the products of two bases are the cosines of their principal angles
    if how == "trace":
        cosines = np.abs(np.einsum("ijkk->ijk", inner))
    else:
        cosines = np.linalg.svd(inner, compute_uv=False)
    each = _degrees(cosines)
    between = each.min(axis=2) if how == "smallest" else each.sum(axis=2)
    return (between + between.T) / 2


def _closest_vectors(sent: Subspaces) -> np.ndarray:
    """Return f64[n, n] the smallest angle between any vector of one client and any of the other,
    whatever their labels."""
    n, _, _, features = sent.bases.shape
    flat = sent.bases.reshape(n, -1, features)
    nonzero_rows = [own[own.any(axis=1)] for own in flat]
    everybody = flat.reshape(-1, features)
    closest = [
        np.abs(own @ everybody.T).reshape(len(own), n, flat.shape[1]).max(axis=(0, 2), initial=0.0)
        for own in nonzero_rows
    ]
    between = _degrees(np.array(closest))
    np.fill_diagonal(between, 0.0)
    return (between + between.T) / 2


def _degrees(cosines: np.ndarray) -> np.ndarray:
    """Return the angles of these cosines."""
    cosines = np.clip(cosines, 0.0, 1.0)
    # arccos would make 1e-6 degrees of the last bit of a cosine of 1
    return np.degrees(np.arccos(np.where(cosines > 1 - COSINE_ROUNDING, 1.0, cosines)))
