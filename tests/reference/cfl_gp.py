"""How CFL-GP clusters the profiles of gradients, with numpy and scikit-learn."""

from itertools import permutations

import numpy as np
from sklearn import cluster

from tests.reference.host_clusters import renamed


def cfl_gp(clusters, period, updates_of):
    """The rule; `updates_of(t, model)` f64[n, d] is what all clients make of a model before round
    t."""
    profile = None

    def between(t, models, labels, updates):
        nonlocal profile
        if t % period:
            return models, labels
        new, beta = updates_of(t, models[0]).T, 1 / (np.floor((t + 1) / (clusters * period)) + 1)
        profile = new if profile is None else (1 - beta) * profile + beta * new
        directions = np.linalg.svd(profile, full_matrices=False)[0][:, :clusters]
        found = renamed(
            cluster.KMeans(clusters, n_init=10, random_state=0)
            .fit((directions.T @ profile).T)
            .labels_
        )
        named = [np.array(names)[found] for names in permutations(range(clusters))]
        return models, max(named, key=lambda each: (each == labels).sum())

    return between
