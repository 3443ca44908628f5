"""Clustering on the host with scikit-learn and SciPy, in float64 and on one thread, so that a run's
labels do not depend on the machine, and the steps of OCFL after it. Labels are i32, numbered by
first appearance; −1 is noise. Rows that are not finite are noise. Nothing here fails on one client
or on duplicates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DISTANCE_METRICS = ("euclidean", "cosine", "l1")
NOISE_RULES = ("nearest", "isolate")
# The number of differences n² d up to which Euclidean distances come from differences; above it
# they come from products
MAX_DIRECT_DIFFERENCES = 2e10
# Up to this difference the numbers of a curve from 0 to 1 are equal to `elbow`: far more than
# float64 rounds off, and far less than float32 tells apart
ROUNDING = 1e-9


def optics(
    points: np.ndarray, min_samples: int = 2, xi: float = 0.2, metric: str = "euclidean"
) -> np.ndarray:
    """Cluster points f[n, d] by OPTICS (Ankerst et al.), with clusters by xi: i32[n]; all −1 with
    fewer than min_samples points."""

    def fit(rows: np.ndarray) -> np.ndarray:
        from sklearn.cluster import OPTICS

        if rows.shape[0] < max(min_samples, 2):
            return np.full(rows.shape[0], -1)
        model = OPTICS(min_samples=min_samples, xi=xi, metric="precomputed", n_jobs=1)
        distances = distance_matrix(rows, metric)
        # Duplicates have reachability 0, by which OPTICS divides
        with np.errstate(divide="ignore", invalid="ignore"):
            return model.fit(distances).labels_

    return _fit_finite_rows(fit, points)


def agglomerative(
    points: np.ndarray,
    clusters: int | None = None,
    distance_threshold: float | None = None,
    linkage: str = "complete",
    metric: str = "precomputed",
) -> np.ndarray:
    """Cluster agglomeratively into that many clusters (at most n) or up to a distance threshold:
    exactly one of the two.

    Args:
      points: f[n, n] distances with metric `"precomputed"`, otherwise f[n, d].
      clusters: The number of clusters.
      distance_threshold: The distance from which two clusters are not merged.
      linkage: `"complete"`, `"average"`, `"weighted"`, `"single"`, or `"ward"`, which needs metric
        `"euclidean"`.
      metric: `"precomputed"` or a metric of `distance_matrix`.

    Returns:
      i32[n].
    """
    if (clusters is None) == (distance_threshold is None):
        raise ValueError("agglomerative: give either clusters or distance_threshold")

    def fit(rows: np.ndarray) -> np.ndarray:
        # scikit-learn's class calls it, too, and takes a second to import
        from scipy.cluster import hierarchy

        n = len(rows)
        if n < 2:
            return np.zeros(n, int)
        if linkage == "ward":
            merges = hierarchy.ward(rows)
        else:
            distances = rows if metric == "precomputed" else distance_matrix(rows, metric)
            merges = hierarchy.linkage(distances[np.triu_indices(n, 1)], linkage)
        if clusters is None:
            number = 1 + int((merges[:, 2] >= distance_threshold).sum())
        else:
            number = min(clusters, n)
        return _cut_tree(merges, number)

    if metric != "precomputed":
        return _fit_finite_rows(fit, points)
    distances = np.asarray(points, np.float64)
    kept = _finite_block(distances)
    return _fit_labels(fit, distances[np.ix_(kept, kept)], kept, len(points))


def scale_threshold(threshold: float, distances: np.ndarray, unit: str) -> float:
    """Return the distance at which a tree of clusters is cut. It is above 0, so that equal points
    are one cluster.

    Args:
      threshold: The distance, in this unit.
      distances: f64[n, n] the distances of the points.
      unit: `"median"`, the median distance of two points, or `"absolute"`.
    """
    pairs = distances[np.triu_indices(len(distances), 1)]
    pairs = pairs[np.isfinite(pairs)]
    if unit == "median" and len(pairs):
        threshold *= float(np.median(pairs))
    return max(threshold, float(np.finfo(np.float64).tiny))


def distance_matrix(points: np.ndarray, metric: str = "euclidean") -> np.ndarray:
    """Return f64[n, n] the distances between the rows of points f[n, d]: `"euclidean"`, `"l1"`, or
    `"cosine"` (1 − cosine; 1 to a zero vector). Symmetric, diagonal 0, and 0 between duplicates."""
    from scipy.spatial.distance import cdist

    points = np.asarray(points, np.float64)
    if metric == "l1":
        return cdist(points, points, "cityblock")
    if metric == "cosine":
        return _cosine_distances(points)
    if metric != "euclidean":
        raise ValueError(f'metric "{metric}": must be one of {", ".join(DISTANCE_METRICS)}')
    if len(points) ** 2 * points.shape[1] <= MAX_DIRECT_DIFFERENCES:
        return cdist(points, points)
    return _long_distances(points)


def elbow(values: np.ndarray) -> int:
    """Return the position in the ascending values f64[n] from which they rise fast, by Kneedle
    (Satopää et al. 2011) with sensitivity 1 as kneed had it until 0.8.5; the last one if there is
    none. Numbers that differ by rounding are equal."""
    n, span = len(values), np.ptp(values)
    # How far the mirrored curve is above a line
    away = (values[-1] - values[::-1]) / (span or 1.0) - np.linspace(0, 1, n)
    beside = np.pad(away, 1, mode="edge")
    bound, knee = -np.inf, 0
    for i in range(n - 1):
        if away[i] >= max(beside[i], beside[i + 2]) - ROUNDING:
            bound, knee = away[i] - 1 / (n - 1), i
        if away[i] <= min(beside[i], beside[i + 2]) + ROUNDING:
            bound = 0.0 if bound > -np.inf else bound
        # Two equal values, as of two clients that are each other's nearest, are exactly at the
        # bound of the first, and so not below it
        if away[i + 1] < bound - ROUNDING:
            return n - 1 - knee
    return n - 1


def renumber_by_appearance(labels: np.ndarray) -> np.ndarray:
    """Return i32[n] the same partition, numbered 0, 1, … in the order of first appearance; negative
    labels become −1."""
    labels = np.asarray(labels)
    names: dict[int, int] = {}
    return np.array(
        [-1 if k < 0 else names.setdefault(int(k), len(names)) for k in labels], np.int32
    ).reshape(labels.shape)


def settle_noise(weights: np.ndarray, labels: np.ndarray, rule: str = "nearest") -> np.ndarray:
    """Give each point of noise a cluster (OCFL): by `"nearest"` the cluster whose mean weights (of
    weights f[n, d]) are most similar by cosine, by `"isolate"` one of its own. Without any cluster
    all are in cluster 0. Return i32[n] labels."""
    if rule not in NOISE_RULES:
        raise ValueError(f'noise "{rule}": must be one of {", ".join(NOISE_RULES)}')
    labels = np.asarray(labels).copy()
    if (labels < 0).all():
        return np.zeros(labels.shape, np.int32)
    noise = np.flatnonzero(labels < 0)
    if rule == "nearest":
        labels[noise] = nearest_mean_cosine(weights, labels, noise)
    else:
        labels[noise] = labels.max() + 1 + np.arange(noise.size)
    return renumber_by_appearance(labels)


def nearest_mean_cosine(weights: np.ndarray, labels: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return i64[len(which)]: for each of the rows `which` of weights f[n, d], the label whose mean
    weights have the largest cosine with the row; ties to the lowest label."""
    names, means = cluster_means(weights, labels)
    return names[_cosines(np.asarray(weights, np.float64)[which], means).argmax(axis=1)]


def merge_to(weights: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Merge, while there are more than count clusters, the two whose mean weights (of weights
    f[n, d]) have the largest cosine; ties go to the lowest pair. Label −1 stays. Return i32[n]
    labels."""
    labels = np.asarray(labels).copy()
    names, means = cluster_means(weights, labels)
    usable = np.isfinite(weights).all(axis=1)
    # A cluster without a finite row has mean 0; it must weigh nothing, but not make 0 / 0
    size = np.array([max(((labels == k) & usable).sum(), 1e-9) for k in names], np.float64)
    while len(names) > max(count, 1):
        pairs = np.triu(np.ones((len(names),) * 2, bool), 1)
        similar = np.where(pairs, _cosines(means, means), -np.inf)
        a, b = divmod(int(similar.argmax()), len(names))
        labels[labels == names[b]] = names[a]
        means[a] = (size[a] * means[a] + size[b] * means[b]) / (size[a] + size[b])
        size[a] += size[b]
        names = np.delete(names, b)
        means = np.delete(means, b, axis=0)
        size = np.delete(size, b)
    return renumber_by_appearance(labels)


def cluster_means(weights: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean f64[K, d] of each cluster over the finite rows of weights f[n, d], and list
    the labels ≥ 0, ascending."""
    weights = np.asarray(weights)
    labels = np.asarray(labels)
    usable = np.isfinite(weights).all(axis=1)
    names = np.unique(labels[labels >= 0])
    means = np.zeros((len(names), weights.shape[1]))
    for mean, name in zip(means, names, strict=True):
        rows = (labels == name) & usable
        if rows.any():
            mean[:] = weights[rows].mean(axis=0, dtype=np.float64)
    return names, means


def _cut_tree(merges: np.ndarray, clusters: int) -> np.ndarray:
    """Return i64[n]: the clusters of n points after the first of their merges f64[n − 1, 4], as
    many as leave that number of clusters. Merge i unites the nodes in its first two columns to node
    n + i."""
    n = len(merges) + 1
    parent = np.arange(2 * n - 1)
    for i, pair in enumerate(merges[: n - clusters, :2].astype(int)):
        parent[pair] = n + i
    # From the root down, so that the parent of a node is already its root
    for node in reversed(range(2 * n - 1)):
        parent[node] = parent[parent[node]]
    return parent[:n]


def _fit_finite_rows(fit: Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> np.ndarray:
    points = np.asarray(points)
    usable = np.isfinite(points).all(axis=1)
    return _fit_labels(fit, np.asarray(points[usable], np.float64), usable, len(points))


def _fit_labels(
    fit: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, kept: np.ndarray, n: int
) -> np.ndarray:
    """Return i32[n]: the labels that `fit` gives the rows, which are the points `kept` of n; −1 for
    the other points."""
    from threadpoolctl import threadpool_limits

    labels = np.full(n, -1)
    if len(rows):
        # The order of sums, and with it the last bits, depends on the number of threads
        with threadpool_limits(limits=1):
            labels[kept] = fit(rows)
    return renumber_by_appearance(labels)


def _finite_block(distances: np.ndarray) -> np.ndarray:
    """Return i64[m]: the rows of distances f64[n, n] that remain after rows are dropped, the one
    with the most NaN or Inf first, until no distance among the rest is NaN or Inf."""
    kept = np.arange(len(distances))
    while len(kept):
        broken = (~np.isfinite(distances[np.ix_(kept, kept)])).sum(axis=1)
        if not broken.any():
            break
        kept = np.delete(kept, broken.argmax())
    return kept


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return f64[n, m] the cosines of the rows of a and b; 0 for zero vectors and for rows that are
    not finite."""
    return _normalise(a) @ _normalise(b).T


def _normalise(x: np.ndarray) -> np.ndarray:
    x = np.where(np.isfinite(x).all(axis=1, keepdims=True), x, 0.0)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norm > 0, norm, 1.0)


def _cosine_distances(points: np.ndarray) -> np.ndarray:
    distances = np.clip(1.0 - _cosines(points, points), 0.0, 2.0)
    distances = (distances + distances.T) / 2
    # Parallel up to rounding: duplicates must be at distance 0
    distances[distances < 1e-15] = 0.0
    np.fill_diagonal(distances, 0.0)
    return distances


def _long_distances(points: np.ndarray) -> np.ndarray:
    """Return f64[n, n] Euclidean distances, computed from products; for close pairs, for which
    products lose digits, from differences."""
    centred = points - points.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    sizes = squares[:, None] + squares[None, :]
    square = np.maximum(sizes - 2 * centred @ centred.T, 0.0)
    # Rows are compared as bytes, in which −0 and 0 differ; + 0.0 makes 0 of both
    content = np.unique([hash(row.tobytes()) for row in points + 0.0], return_inverse=True)[1]
    same = content[:, None] == content[None, :]
    square[same] = 0.0
    for i, j in zip(*np.nonzero(np.triu((square < 1e-6 * sizes) & ~same, 1)), strict=True):
        square[i, j] = np.sum((points[i] - points[j]) ** 2)
    upper = np.triu(square, 1)
    return np.sqrt(upper + upper.T)
