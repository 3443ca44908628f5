"""pFedGraph as a plain loop: the quadratic programme by bisection, and local training from the
mixtures."""

import numpy as np

from tests.reference import plain


def weights(cosines, share, lam):
    """argmin lam ‖x − share‖² − ⟨x, cosines⟩ on the simplex, where x_j = max(share_j + (cosines_j −
    nu) / 2 lam, 0) for one nu."""
    low, high = -10 * (1 + lam), 10 * (1 + lam)
    for _ in range(200):
        nu = (low + high) / 2
        x = np.maximum(share + (cosines - nu) / (2 * lam), 0)
        low, high = (nu, high) if x.sum() > 1 else (low, nu)
    return x / x.sum()


def cosine(a, b):
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / length if length > 0 else 0.0


def run(net, federation, w, seed, rounds, participants, lam, lr=0.1):
    """The model that each client is scored with."""
    clients = plain.Clients(federation)
    own, there = [w.copy() for _ in clients.train], []
    for t in range(rounds):
        ids, key = plain.cohort(seed, t, clients.uid, participants), plain.round_key(seed, t)
        share, new = clients.size[there] / max(clients.size[there].sum(), 1), {}
        for i in ids:
            start = own[i]
            if there:
                x = weights(np.array([cosine(own[i] - w, own[j] - w) for j in there]), share, lam)
                start = sum(v * own[j] for v, j in zip(x, there, strict=True))
            new[i] = plain.fit(
                net, start, clients.train[i], plain.local_key(key, clients.uid[i]), lr, batch=5
            )[0]
        own = [new.get(i, m) for i, m in enumerate(own)]
        there = sorted({*there, *(int(i) for i in ids)})
    mean = plain.average([own[j] for j in there], clients.size[there])
    return np.array([m if i in there else mean for i, m in enumerate(own)])
