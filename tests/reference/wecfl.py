"""WeCFL, one client after another."""

import numpy as np
from sklearn import cluster

from tests.reference import plain
from tests.reference.host_clusters import renamed


def wecfl(net, clients, w, columns, clusters, rounds, participants, seed, by_samples):
    """(Models, labels) after all rounds: K-means counts a client by its samples, and clusters keep
    their names."""
    models, labels = {0: w}, np.zeros(len(clients.uid), int)
    for t in range(rounds):
        ids, key = plain.cohort(seed, t, clients.uid, participants), plain.round_key(seed, t)
        starts = [
            (models[labels[i]], clients.train[i], plain.local_key(key, clients.uid[i])) for i in ids
        ]
        trained = np.array([plain.fit(net, *each, 0.3, batch=5)[0] for each in starts])
        weight = clients.size[ids] if by_samples else np.ones(len(ids))
        found = (
            cluster.KMeans(clusters, n_init=20, random_state=0)
            .fit(trained[:, columns], sample_weight=weight)
            .labels_
        )
        order, free, names = np.argsort(clients.uid[ids]), set(range(clusters)), {}
        found[order] = renamed(found[order])
        pairs = [
            (-sum((found == new) & (labels[ids] == old)), new, old)
            for new in range(clusters)
            for old in range(clusters)
        ]
        for _, new, old in sorted(pairs):
            if new not in names and old in free:
                names[new] = old
                free.remove(old)
        labels[ids] = [names[k] for k in found]
        for k in set(labels[ids]):
            own = labels[ids] == k
            models[k] = plain.average(trained[own], weight[own])
    return models, labels
