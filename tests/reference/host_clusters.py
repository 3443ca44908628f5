"""FedAvg inside clusters that change between rounds, as a plain loop; and the rules of Sattler's
CFL, FL+HC and PACFL for them."""

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform

from tests.reference import plain


def renamed(labels):
    """Numbered by first appearance."""
    names = {}
    return np.array([names.setdefault(k, len(names)) for k in labels])


def cut(apart, threshold, how):
    """Agglomerative clusters of a distance matrix, as scipy has them."""
    if len(apart) == 1:
        return np.zeros(1, int)
    return renamed(
        fcluster(
            linkage(squareform(apart, checks=False), how), np.nextafter(threshold, 0), "distance"
        )
    )


def rounds(net, clients, w, labels, key_of, ids_of, between, n, lr=0.1, average="samples"):
    """(models by cluster, labels) after n rounds; `between(t, models, labels, updates)` may change
    labels."""
    models, updates = {0: w} if np.ndim(w) == 1 else dict(enumerate(w)), {}
    for t in range(n):
        models, labels = between(t, models, labels, updates)
        updates = {}
        for i in ids_of(t):
            local = plain.local_key(key_of(t), clients.uid[i])
            updates[i] = (
                plain.fit(net, models[labels[i]], clients.train[i], local, lr, batch=5)[0]
                - models[labels[i]]
            )
        for k in models:
            members = [i for i in updates if labels[i] == k]
            if members:
                models[k] = models[k] + plain.average(
                    [updates[i] for i in members],
                    clients.size[members] if average == "samples" else np.ones(len(members)),
                )
    return between(n, models, labels, updates)


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def sattler(clients, eps1, eps2, min_rounds, min_size, rounds_, gamma_max=0.0):
    """The rule of `between`."""

    def between(t, models, labels, updates):
        if not min_rounds <= t < rounds_:
            return models, labels
        for k in list(models):
            members = np.array([i for i in updates if labels[i] == k])
            mean = plain.average([updates[i] for i in members], clients.size[members])
            largest = max(np.linalg.norm(updates[i]) for i in members)
            if len(members) > min_size and np.linalg.norm(mean) < eps1 and largest > eps2:
                apart = np.array(
                    [[1 - cosine(updates[i], updates[j]) for j in members] for i in members]
                )
                np.fill_diagonal(apart, 0)
                tree = linkage(squareform(apart, checks=False), "complete")
                half = renamed(fcluster(tree, 2, "maxclust"))
                across = max(
                    1 - apart[i, j]
                    for i in range(len(half))
                    for j in range(len(half))
                    if half[i] != half[j]
                )
                if gamma_max and gamma_max >= np.sqrt((1 - across) / 2):
                    continue
                labels, new = labels.copy(), len(models)
                labels[members[half == 1]] = new
                models[new] = models[k].copy()
        return models, labels

    return between


def fl_hc_labels(updates, metric, how, threshold, median):
    """Labels from f64[n, d] updates."""
    points = np.asarray(updates, np.float64)
    pairs = pdist(points, {"l1": "cityblock", "l2": "euclidean", "cosine": "cosine"}[metric])
    return cut(squareform(pairs), threshold * (np.median(pairs) if median else 1), how)


def angle_distance(a, b, p, how):
    """Between the data of two clients, (x, y) each: per label, or of any two of the vectors,
    whatever their labels."""
    if how == "vectors":
        left, right = (
            np.hstack([singular(x[y == k], p) for k in sorted(set(y))]) for x, y in (a, b)
        )
        return np.degrees(np.arccos(np.clip(np.abs(left.T @ right), 0, 1))).min()
    parts = []
    for k in sorted(set(a[1]) | set(b[1])):
        if k not in a[1] or k not in b[1]:
            parts.append(90.0 if how == "smallest" else 90.0 * p)
            continue
        left, right = (singular(x[y == k], p) for x, y in (a, b))
        cosines = np.linalg.svd(left.T @ right)[1]
        if (
            how == "trace"
            # as printed: tr arccos(UᵀV), the first vector with the first, the second with the
            # second, …
        ):
            cosines = np.abs(np.diag(left.T @ right))
        each = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
        missing = p - len(each)
        parts.append(each.min() if how == "smallest" else each.sum() + 90.0 * missing)
    return np.mean(parts)


def singular(x, p):
    """The leading left singular vectors of the samples x, one per column."""
    return np.linalg.svd(x.T, full_matrices=False)[0][:, :p]


def mean_of_rows(apart, threshold):
    """The two nearest clusters become one, whose row is the mean of both rows, while they are
    within the threshold."""
    apart, groups = np.array(apart, np.float64), [[i] for i in range(len(apart))]
    while len(groups) > 1:
        np.fill_diagonal(apart, np.inf)
        i, j = sorted(np.unravel_index(np.argmin(apart), apart.shape))
        if apart[i, j] > threshold:
            break
        apart[i] = apart[:, i] = (apart[i] + apart[j]) / 2
        apart = np.delete(np.delete(apart, j, 0), j, 1)
        groups[i] += groups.pop(j)
    return np.array(
        [
            next(k for k, group in enumerate(groups) if c in group)
            for c in range(sum(map(len, groups)))
        ]
    )
