"""HOST. How many clusters there are, from the directions of vectors alone: by silhouettes, or by the gap of eigenvalues."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.kernels import host

CRITERIA = ("silhouette", "eigengap")
CURVE_FACTOR = 2  # The criterion is computed for up to this many times `most` clusters
LEAST_SILHOUETTE = 0.25  # A mean silhouette below this counts as no structure (Kaufman and Rousseeuw 1990, table 4): one cluster
SAME_TOLERANCE = 1e-5  # A vector that is no further from the mean than this share of its length counts as equal to it


class Choice(NamedTuple):
    """A number of clusters, and why."""

    clusters: int
    curve: np.ndarray
    """f64[CURVE_FACTOR · most]: the criterion of 1, 2, … clusters; NaN where there are too few vectors for that number."""


def choose_number(vectors: np.ndarray, most: int, how: str = "silhouette") -> Choice:
    """Choose the number of clusters, from 1 to `most`, of vectors f[n, d], by the cosines of their differences from the common
    mean.

    The largest value of the curve decides, and the smallest number in a tie. If it lies beyond `most`, the vectors fall into many
    small groups rather than a few clusters, and the number is 1. Rows that are not finite are left out.

    "silhouette": the mean silhouette of average linkage into K clusters; one cluster has LEAST_SILHOUETTE. "eigengap": the distance
    from the K-th eigenvalue of the normalised Laplacian of the positive cosines to the next."""
    if how not in CRITERIA:
        raise ValueError(f'number of clusters by "{how}": must be one of {", ".join(CRITERIA)}')
    rows = np.asarray(vectors, np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    curve = np.full(CURVE_FACTOR * most, np.nan)
    curve[0] = LEAST_SILHOUETTE if how == "silhouette" else 0.0
    if len(rows) > 2:
        own = rows - rows.mean(axis=0)
        rounding = np.linalg.norm(own, axis=1) <= SAME_TOLERANCE * np.linalg.norm(rows, axis=1)
        apart = host.distance_matrix(np.where(rounding[:, None], 0.0, own), "cosine")
        found = _silhouettes(apart, len(curve)) if how == "silhouette" else _gaps(apart, len(curve))
        curve[: len(found)] = found
    best = int(np.nanargmax(curve)) + 1
    return Choice(best if best <= most else 1, curve)


def _silhouettes(apart: np.ndarray, up_to: int) -> np.ndarray:
    """f64[≤ up_to]: of 1, 2, … clusters of n points, n − 1 at most, from distances f64[n, n]."""
    from sklearn.metrics import silhouette_score

    labels = {k: host.agglomerative(apart, clusters=k, linkage="average") for k in range(2, min(up_to, len(apart) - 1) + 1)}
    return np.array([LEAST_SILHOUETTE] + [silhouette_score(apart, found, metric="precomputed") for found in labels.values()])


def _gaps(apart: np.ndarray, up_to: int) -> np.ndarray:
    """f64[≤ up_to]: of 1, 2, … clusters of n points, n − 1 at most, from cosine distances f64[n, n]."""
    near = np.maximum(1.0 - apart, 0.0)
    np.fill_diagonal(near, 0.0)
    degree = near.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    laplacian = np.eye(len(near)) - scale[:, None] * near * scale
    return np.diff(np.linalg.eigvalsh(laplacian))[:up_to]
