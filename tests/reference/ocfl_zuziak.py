"""When Zuziak's OCFL clusters and how, with numpy and scikit-learn."""

import numpy as np
from sklearn import cluster

from tests.reference.host_clusters import cosine, renamed


def zuziak(algorithm):
    """The rule of `host_clusters.rounds`: one clustering after the first round whose temperature
    has risen."""
    heats = []

    def between(t, models, labels, updates):
        if t == 0 or len(models) > 1 or (len(heats) > 1 and heats[-1] > heats[-2]):
            return models, labels
        n = len(updates)
        apart = np.array(
            [
                [0.0 if i == j else 1 - cosine(updates[i], updates[j]) for j in range(n)]
                for i in range(n)
            ]
        )
        heats.append(np.sqrt(sum(a**2 for row in apart for a in row) / (n * (n - 1) * 2**2)))
        if len(heats) > 1 and heats[-1] > heats[-2]:
            make = {
                "mean_shift": cluster.MeanShift,
                "hdbscan": lambda: cluster.HDBSCAN(3, metric="precomputed", copy=True),
            }
            labels = renamed(make[algorithm]().fit(apart).labels_)
            models = {k: models[0].copy() for k in range(labels.max() + 1)}
        return models, labels

    return between, heats
