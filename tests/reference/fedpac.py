"""FedPAC, one client after another."""

from itertools import product

import numpy as np

from tests.reference import plain


def fedpac(net, clients, w, rounds, participants, lr, lam, head_epochs, epochs):
    """(The models that clients are scored with, the numbers sent down and up besides models)."""
    at, n = w.size - net.layers(w)[1][0].size - net.layers(w)[1][1].size, len(clients.uid)
    body, heads, centroids, sent, seen = w[:at], [w[at:]] * n, {}, [0, 0], set()
    for t in range(rounds):
        key, present = plain.round_key(0, t), plain.cohort(0, t, clients.uid, participants)
        width, trained, statistics, of_class = (
            net.features(w, clients.train[0][0]).shape[1],
            [],
            [],
            {},
        )
        sent[0] += len(present) * width * len(centroids)
        for c in present:
            (x, y), mine = clients.train[c], np.append(body, heads[c])
            z = net.features(mine, x)
            means = {label: z[y == label].sum(axis=0) / len(y) for label in set(y)}
            within = np.mean([a @ a for a in z]) - sum(m @ m for m in means.values())
            statistics.append((within / len(y), means))
            for i, rows in enumerate(
                plain.batches(
                    plain.local_key(key, clients.uid[c]), len(y), 5, epochs=head_epochs + epochs
                )
            ):
                z = net.features(mine, x[rows])
                to = np.array(
                    [centroids.get(label, here) for label, here in zip(y[rows], z, strict=True)]
                )
                slope = net.gradient(mine, x[rows], y[rows], more=lam * 2 * (z - to) / width)
                slope[slice(0, at) if i < head_epochs * -(-len(y) // 5) else slice(at, None)] = 0
                mine = mine - lr * slope
            trained.append(mine)
            for z, label in zip(net.features(mine, x), y, strict=True):
                of_class.setdefault(label, []).append(z)
            sent[1] += (2 * width + 1) * len(means) + 1
        body = plain.average(trained, clients.size[present])[:at]
        for c, (_, mine) in zip(present, statistics, strict=True):
            apart = [{k: mine.get(k, 0) - h.get(k, 0) for k in {*mine, *h}} for _, h in statistics]
            form = [[sum(a[k] @ b[k] for k in a.keys() & b.keys()) for b in apart] for a in apart]
            alpha = least_on_simplex(np.array(form) + np.diag([v for v, _ in statistics]))
            heads[c] = sum(a * model[at:] for a, model in zip(alpha, trained, strict=True))
        centroids |= {label: np.mean(each, axis=0) for label, each in of_class.items()}
        seen |= set(present)
    mean = plain.average([heads[c] for c in sorted(seen)], clients.size[sorted(seen)])
    return np.array([np.append(body, heads[c] if c in seen else mean) for c in range(n)]), sent


def least_on_simplex(form):
    """The p that makes pᵀ form p least, p ≥ 0 and Σp = 1: the best of those that are least where
    the others are 0."""
    best, n = (np.inf, None), len(form)
    for chosen in product([False, True], repeat=n):
        if any(chosen):
            own = np.flatnonzero(chosen)
            p = np.zeros(n)
            p[own] = np.linalg.lstsq(form[np.ix_(own, own)], np.ones(len(own)), rcond=None)[0]
            p /= p.sum()
            if (p >= 0).all() and p @ form @ p < best[0]:
                best = p @ form @ p, p
    return best[1]
