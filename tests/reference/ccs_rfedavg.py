"""CCS + RFedAvg as a plain loop: clusters of gradients, weights by imbalance, one global step."""

import itertools

import numpy as np
from scipy.optimize import minimize

from tests.reference import plain


def cover(similar):
    """Algorithm 1: who has the most unclustered neighbours founds the next cluster with them."""
    left, labels, number = list(range(len(similar))), np.full(len(similar), -1), 0
    while left:
        near = {i: [j for j in left if similar[i, j]] for i in left}
        founder = max(left, key=lambda i: (len(near[i]), -i))
        labels[near[founder]] = number
        left = [i for i in left if labels[i] < 0]
        number += 1
    return labels


def kmeans(vectors, clusters, uid):
    """The partition into at most so many clusters with the least squares within them (eq. 18), by
    trying all; clusters are numbered by their smallest uid."""
    points, best = np.array(vectors, float), (np.inf, None)
    for labels in partitions(len(points), clusters):
        apart = sum(
            ((points[labels == n] - points[labels == n].mean(axis=0)) ** 2).sum()
            for n in range(labels.max() + 1)
        )
        best = min(best, (apart, tuple(labels)))
    labels = np.array(best[1])
    order = np.argsort([uid[labels == n].min() for n in range(labels.max() + 1)])
    return np.argsort(order)[labels]


def partitions(n, clusters):
    """Every way to divide n things into at most so many clusters, each once."""
    for code in itertools.product(range(clusters), repeat=n):
        if all(label <= max(code[:i], default=-1) + 1 for i, label in enumerate(code)):
            yield np.array(code)


def cosines(vectors):
    norms = np.array([np.linalg.norm(v) or 1.0 for v in vectors])
    out = np.array(vectors) @ np.array(vectors).T / norms[:, None] / norms[None, :]
    np.fill_diagonal(out, 1.0)
    return out


def rfedavg(labels, counts, total):
    """p ∝ 1 / I_C, I_C = I of the most imbalanced member less the samples of the others (eq.
    17)."""
    level, size = np.abs(total / counts.shape[1] - counts).sum(axis=1), counts.sum(axis=1)
    p = []
    for n in range(labels.max() + 1):
        members = np.flatnonzero(labels == n)
        lead = members[level[members].argmax()]
        p.append(1 / max(level[lead] - size[members].sum() + size[lead], 1))
    return np.array(p) / sum(p)


def optimal(shares):
    """Q1 (eq. 16) by a generic solver."""
    n, m = shares.shape
    sums = {"type": "eq", "fun": lambda p: p.sum() - 1}
    objective = lambda p: 1e3 * ((p @ shares - 1 / m) ** 2).sum()  # noqa: E731
    return minimize(
        objective,
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints=sums,
        options={"ftol": 1e-13, "maxiter": 1000},
    ).x


def run(net, federation, w, seed, rounds, participants, lr=0.1, weights="rfedavg", local="gradient", theta=0.1, l_star=0.05,
        clusters=None, **fit):  # fmt: skip
    """(w, a list with labels, ε, p and b̃ of each round). `clusters`: K-means into so many."""
    loss0, seen = None, []
    for t in range(rounds):
        clients = plain.Clients(federation.at(t))
        counts = np.array(
            [np.bincount(y, minlength=federation.classes) for _, y in clients.train], float
        )
        ids, key = plain.cohort(seed, t, clients.uid, participants), plain.round_key(seed, t)
        size, data = clients.size[ids], [clients.train[i] for i in ids]
        if local == "gradient":
            g = [net.gradient(w, *d) for d in data]
            losses = [net.loss(w, *d) for d in data]
        else:
            each = zip(ids, data, strict=True)
            trained = [
                plain.fit(net, w, d, plain.local_key(key, clients.uid[i]), lr, **fit)[0]
                for i, d in each
            ]
            g = [-(v - w) / lr for v in trained]
            losses = [net.loss(w, *d) for d in data]
        now = np.average(losses, weights=size)
        loss0 = now if loss0 is None else loss0
        fraction = np.clip((loss0 - now) / (loss0 - l_star), 0, 1) if loss0 > l_star else 1.0
        epsilon = np.cos(theta + (np.pi / 2 - theta) * fraction)  # eq. 7
        if weights == "fedavg":
            labels = np.zeros(len(ids), int)
        elif clusters is None:
            labels = cover(cosines(g) >= epsilon)
        else:
            labels = kmeans(g, clusters, clients.uid[ids])
        names = range(labels.max() + 1)
        shares = np.array(
            [counts[ids][labels == n].sum(axis=0) / size[labels == n].sum() for n in names]
        )
        rule = {"fedavg": lambda: np.ones(1), "optimal": lambda s=shares: optimal(s)}
        p = rule.get(weights, lambda k=labels, n=counts, i=ids: rfedavg(k, n[i], n.sum()))()
        means = [
            plain.average([v for v, k in zip(g, labels, strict=True) if k == n], size[labels == n])
            for n in names
        ]
        w = w - lr * (p @ np.array(means))
        seen.append((labels, epsilon, p, p @ shares))
    return w, seen
