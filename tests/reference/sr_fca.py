"""SR-FCA's clusters before the first round and their refinements, with numpy."""

import numpy as np

from tests.reference.host_clusters import renamed


def sr_fca(w0, local, fraction, min_size, every, refinements, luck, loss=None):
    """(The clusters to begin with, the rule) from local models f64[n, d]; `luck(t, m)`: m random
    numbers, the least goes first; `loss(w, i)`: of a model on the data of client i, where models
    are compared by their losses on each other's data."""

    def far(a, of_a, b, of_b):
        """The distance of two models, which are of these clients."""
        if loss is None:
            return np.linalg.norm(a - b)
        return (np.mean([loss(a, i) for i in of_b]) + np.mean([loss(b, i) for i in of_a])) / 2

    def united(models, of, near, numbers):
        groups, left = [], sorted(range(len(models)), key=lambda i: numbers[i])
        while left:
            first = left[0]
            groups.append(
                [
                    i
                    for i in left
                    if i == first or far(models[i], of[i], models[first], of[first]) <= near
                ]
            )
            left = [i for i in left if i not in groups[-1]]
        return groups

    alone = [[i] for i in range(len(local))]
    pairs = sorted(
        far(a, [i], b, [j]) for i, a in enumerate(local) for j, b in enumerate(local[:i])
    )
    near = pairs[int(np.ceil(fraction * len(pairs)))]
    groups = [g for g in united(local, alone, near, luck(0, len(local))) if len(g) >= min_size]

    def to_group(i, g):
        if loss is None:
            return far(local[i], [i], local[g].mean(axis=0), g)
        return np.mean([far(local[i], [i], local[j], [j]) for j in g])

    labels = np.array(
        [
            next(
                (k for k, g in enumerate(groups) if i in g),
                int(np.argmin([to_group(i, g) for g in groups])),
            )
            for i in range(len(local))
        ]
    )

    def between(t, models, labels, updates):
        if t == 0 or t % every or t > every * refinements:
            return models, labels
        of = {k: np.flatnonzero(labels == k) for k in sorted(models)}
        to = np.array([[far(models[k], of[k], x, [i]) for k in of] for i, x in enumerate(local)])
        sizes = np.bincount(to.argmin(axis=1), minlength=len(of))
        kept = [models[k] for k, size in zip(of, sizes, strict=True) if size >= min_size]
        own = to[:, sizes >= min_size].argmin(axis=1)
        members = [np.flatnonzero(own == m) for m in range(len(kept))]
        groups = united(kept, members, near, luck(t, len(kept)))
        new = {m: k for k, group in enumerate(groups) for m in group}
        labels = renamed([new[m] for m in own])
        return {k: w0.copy() for k in range(labels.max() + 1)}, labels

    return renamed(labels), between
