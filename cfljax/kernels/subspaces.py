"""HOST. Angles between the subspaces of the clients' data, as PACFL compares them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SAME = 1e-12  # Cosines this close to 1 are rounding: the directions are the same
RIGHT = 90.0


class Subspaces(NamedTuple):
    """What the clients send."""

    # f64[n, L, p, F] orthonormal rows, zero where there are no more directions; L = 1 without
    # labels
    bases: np.ndarray
    held: np.ndarray  # bool[n, L]: the client has such samples


def joined(first: Subspaces, more: Subspaces) -> Subspaces:
    """Return what the clients of both send."""
    return Subspaces(*(np.concatenate(pair) for pair in zip(first, more, strict=True)))


def nearest(sent: Subspaces, own: np.ndarray, how: str, linkage: str) -> np.ndarray:
    """i32[m]: the nearest cluster of each of the last m clients. `own` i[n]: the clusters of the
    first n."""
    apart = distances(sent, how)[len(own) :, : len(own)]
    parts = [apart[:, own == k] for k in range(int(own.max()) + 1)]
    to_each = {
        "weighted": [part.mean(axis=1) for part in parts],
        "average": [part.mean(axis=1) for part in parts],
        "complete": [part.max(axis=1) for part in parts],
        "single": [part.min(axis=1) for part in parts],
    }[linkage]
    return np.argmin(np.stack(to_each, axis=1), axis=1).astype(np.int32)


def leading(x: np.ndarray, p: int) -> np.ndarray:
    """f64[p, F] the p leading right singular vectors of x f64[n, F], by the smaller Gram matrix;
    zero rows if there are fewer."""
    out = np.zeros((p, x.shape[1]))
    n, features = x.shape
    if min(n, features) == 0:
        return out
    vectors = np.linalg.eigh(x.T @ x if features <= n else x @ x.T)[1][:, ::-1][:, :p]
    wide = vectors.T if features <= n else vectors.T @ x
    strength = np.linalg.norm(x @ wide.T, axis=0) if features <= n else np.linalg.norm(wide, axis=1)
    real = strength > 1e-6 * max(strength[0], np.finfo(np.float64).tiny)
    q = np.linalg.qr(wide[real].T)[0].T if real.any() else wide[:0]
    out[: len(q)] = q
    return out


def distances(sent: Subspaces, how: str) -> np.ndarray:
    """f64[n, n] degrees between the clients."""
    if how == "vectors":
        return _closest_vectors(sent)
    n, kinds, p, _ = sent.bases.shape
    how = "smallest" if how == "labels" else how
    orthogonal = RIGHT if how == "smallest" else RIGHT * p
    total, labels = np.zeros((n, n)), np.zeros((n, n))
    for k in range(kinds):
        has = np.flatnonzero(sent.held[:, k])
        labels += sent.held[:, k][:, None] | sent.held[:, k][None, :]
        part = np.where(sent.held[:, k][:, None] ^ sent.held[:, k][None, :], orthogonal, 0.0)
        part[np.ix_(has, has)] = angles(sent.bases[has, k], how)
        total += part
    apart = total / np.maximum(labels, 1)
    np.fill_diagonal(apart, 0.0)
    return apart


def angles(bases: np.ndarray, how: str) -> np.ndarray:
    """f64[n, n] between bases f64[n, p, F]: the `"smallest"` principal angle of their row spaces,
    the `"sum"` of all p, or (`"trace"`) the sum of the angles between the k-th rows of both, k = 1
    … p."""
    n, p, features = bases.shape
    flat = bases.reshape(n * p, features)
    inner = (flat @ flat.T).reshape(n, p, n, p).transpose(0, 2, 1, 3)
    if n == 0:
        return np.zeros((0, 0))
    pairs = (
        np.abs(np.einsum("ijkk->ijk", inner))
        if how == "trace"
        else np.linalg.svd(inner, compute_uv=False)
    )
    each = _degrees(pairs)
    apart = each.min(axis=2) if how == "smallest" else each.sum(axis=2)
    return (apart + apart.T) / 2


def _closest_vectors(sent: Subspaces) -> np.ndarray:
    """f64[n, n] the smallest angle between any vector of one client and any of the other, whatever
    their labels."""
    n, _, _, features = sent.bases.shape
    flat = sent.bases.reshape(n, -1, features)
    rows = [own[own.any(axis=1)] for own in flat]
    everybody = flat.reshape(-1, features)
    closest = [
        np.abs(own @ everybody.T).reshape(len(own), n, flat.shape[1]).max(axis=(0, 2), initial=0.0)
        for own in rows
    ]
    apart = _degrees(np.array(closest))
    np.fill_diagonal(apart, 0.0)
    return (apart + apart.T) / 2


def _degrees(cosines: np.ndarray) -> np.ndarray:
    """Return the angles; arccos would make 1e-6 degrees of the last bit of a cosine of 1."""
    cosines = np.clip(cosines, 0.0, 1.0)
    return np.degrees(np.arccos(np.where(cosines > 1 - SAME, 1.0, cosines)))
