"""FedClust's clusters as a plain program: the last layers of clients that have trained alone,
merged pair by pair."""

import itertools

import numpy as np

from tests.reference import host_clusters, once


def last_layers(net, clients, w0, seed, lr, batch, epochs):
    """f64[C, p]: each client's biases and weights of the last layer after local training."""
    trained = once.trained(net, clients, w0, seed, lr, batch, epochs)
    return np.array([np.concatenate([part.ravel() for part in net.layers(w)[-1]]) for w in trained])


def clusters(points, threshold, linkage="average", unit="median"):
    """i[n]: the two nearest clusters become one, while they are nearer than the threshold."""
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    if unit == "median":
        threshold *= np.median(
            [apart[i, j] for i, j in itertools.combinations(range(len(points)), 2)]
        )
    of_pairs = {"average": np.mean, "complete": np.max, "single": np.min}[linkage]
    found = [[i] for i in range(len(points))]
    while len(found) > 1:
        distance, a, b = min(
            (of_pairs(apart[np.ix_(found[a], found[b])]), a, b)
            for a, b in itertools.combinations(range(len(found)), 2)
        )
        if distance >= threshold:
            break
        found[a] += found.pop(b)
    labels = np.empty(len(points), int)
    for k, members in enumerate(found):
        labels[members] = k
    return host_clusters.renamed(labels)


def joined(point, points, labels):
    """The cluster whose members' mean is nearest to the point."""
    centres = once.means(points, labels)
    return min(centres, key=lambda k: np.linalg.norm(point - centres[k]))
