"""FedRC as a plain loop: every participant shares out its samples among the models, less what a
model owes to having many samples of a label, and trains all models."""

import numpy as np

from tests.reference import plain


def weights_of_labels(sums):
    """f64[K, M] from the sums of all clients f64[C, K, M]."""
    total = sums.sum(axis=0)
    weights = np.full(total.shape, 1 / total.shape[1])
    for k, of_cluster in enumerate(total):
        for y in range(total.shape[1]):
            if total[:, y].sum() > 0:
                weights[k, y] = max(of_cluster[y] / of_cluster.sum(), 1e-6)
    return weights


def shares(net, models, mixture, weights, x, y):
    """f64[K, n]."""
    q = np.array(
        [
            pi * np.exp(-net.losses(w, x, y)) / c[y]
            for pi, w, c in zip(mixture, models, weights, strict=True)
        ]
    )
    return q / q.sum(axis=0)


def fedrc(net, clients, models, classes, seed, rounds, participants, lr, batch, epochs):
    """(models, mixtures f64[C, K], the sums of all clients f64[C, K, M]) after the rounds."""
    models = [np.array(m, np.float64) for m in models]
    mixture = np.full((len(clients.uid), len(models)), 1 / len(models))
    sums = np.zeros((len(clients.uid), len(models), classes))
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        trained, weights = [[] for _ in models], weights_of_labels(sums)
        for i in present:
            x, y = clients.train[i]
            q = shares(net, models, mixture[i], weights, x, y)
            mixture[i] = q.mean(axis=1)
            sums[i] = [[each[y == label].sum() for label in range(classes)] for each in q]
            for k, w in enumerate(models):
                own = plain.local_key(key, clients.uid[i])
                trained[k].append(
                    plain.fit(net, w, (x, y), own, lr, batch, epochs, weights=q[k])[0]
                )
        models = [plain.average(each, clients.size[present]) for each in trained]
    return np.array(models), mixture, sums
