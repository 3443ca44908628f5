"""FeSEM as plain loops. `authors`: K equal centres, random first memberships, local training, the
mean of the members, one step of K-means of what clients have trained of the last kernel. `fesem`,
as in FedGroup's program: K centres drawn apart from w_0, the centre nearest to the last local
weights, local training from it, the mean of the members."""

import jax
import numpy as np

from cfljax import keys
from tests.reference import plain


def starts(init, seed, clusters):
    """(w_0, the centres): w_0 is the draw number 0 of the seed, which every method starts from; the
    centres are later ones."""
    draws = [
        np.array(init(keys.fold(keys.root(seed), "model", k)), np.float64)
        for k in range(clusters + 1)
    ]
    return draws[0], draws[1:]


def fesem(net, clients, centres, w0, seed, rounds, participants, lr, batch, epochs, average):
    """[(centres, labels)] after each round, and the clients' last weights."""
    centres, labels, history = (
        [np.array(m, np.float64) for m in centres],
        np.full(len(clients.uid), -1),
        [],
    )
    own = [np.array(w0, np.float64) for _ in clients.uid]
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        for i in present:
            labels[i] = np.argmin([np.linalg.norm(own[i] - c) for c in centres])
            own[i], _ = plain.fit(
                net,
                centres[labels[i]],
                clients.train[i],
                plain.local_key(key, clients.uid[i]),
                lr,
                batch,
                epochs,
            )
        for k in range(len(centres)):
            members = [i for i in present if labels[i] == k]
            if members:
                weight = clients.size[members] if average == "samples" else np.ones(len(members))
                centres[k] = plain.average([own[i] for i in members], weight)
        history.append((np.array(centres), labels.copy()))
    return history, np.array(own)


def random_points(seed, uid, size):
    """One point in [−0.01, 0.01] per client, and the order in which clients are taken as
    centres."""
    each = [jax.random.fold_in(keys.fold(keys.root(seed), "point"), int(u)) for u in uid]
    points = [
        0.01 * (2 * np.array(jax.random.uniform(key, (size,)), np.float64) - 1) for key in each
    ]
    return points, np.argsort(
        np.asarray(keys.scores(keys.root(seed), "order", np.asarray(uid, np.uint32))), kind="stable"
    )


class Kmeans:
    """K-means that goes on from call to call: five steps from the first K points, or one from the
    means of the call before."""

    def __init__(self, clusters):
        self.clusters, self.means, self.begins = clusters, None, True

    def labels(self, points):
        steps = 1
        if self.begins:
            self.means, steps = points[: self.clusters].copy(), 5
            self.means = np.concatenate(
                [self.means, np.full((self.clusters - len(self.means), points.shape[1]), np.nan)]
            )
        for _ in range(steps):
            apart = ((points[:, None] - self.means[None]) ** 2).sum(axis=2)
            labels = np.argmin(np.where(np.isnan(apart), np.inf, apart), axis=1)
            with np.errstate(invalid="ignore"):
                members = [points[labels == k] for k in range(self.clusters)]
                self.means = np.array(
                    [each.sum(axis=0) / np.float64(len(each)) for each in members]
                )
        self.begins = len(set(labels)) < self.clusters
        return labels


def authors(net, clients, columns, w0, seed, rounds, participants, clusters, lr, batch, epochs):
    """[(centres, labels)] after each round, the clients' last weights (None: never trained), how
    often K-means began anew."""
    centres, own, history, begun = (
        [np.array(w0, np.float64)] * clusters,
        [None] * len(clients.uid),
        [],
        0,
    )
    points, order = random_points(seed, clients.uid, len(columns))
    kmeans, labels = Kmeans(clusters), np.full(len(clients.uid), -1)
    labels[order] = kmeans.labels(np.array(points)[order])
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        trained = [i for i in order if own[i] is not None]
        if trained:
            begun += kmeans.begins
            labels[trained] = kmeans.labels(np.array([own[i][columns] for i in trained]))
        for i in present:
            local = plain.local_key(key, clients.uid[i])
            own[i], _ = plain.fit(
                net, centres[labels[i]], clients.train[i], local, lr, batch, epochs
            )
        for k in range(clusters):
            members = [own[i] for i in present if labels[i] == k]
            centres[k] = np.mean(members, axis=0) if members else centres[k]
        history.append((np.array(centres), labels.copy()))
    return history, own, begun
