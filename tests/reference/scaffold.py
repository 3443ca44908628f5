"""SCAFFOLD as a plain loop: local steps, each corrected by the difference of two control
variates."""

import numpy as np

from tests.reference import plain


def run(
    net, federation, x0, seed, rounds, participants, lr=0.1, server_lr=1.0, average="uniform", momentum=0.0,
    weight_decay=0.0, **how,
):  # fmt: skip
    """(models x, controls c, of the one cluster; the clients' c_i): `how` says the batches, as in
    `plain.batches`. With plain SGD c_i is that of the paper's option II, from where the steps led."""
    clients = plain.Clients(federation)
    number = len(clients.train)
    x = [x0.copy()]
    c, own = [np.zeros_like(x0) for _ in x], [np.zeros_like(x0) for _ in range(number)]
    size = clients.size if average == "samples" else (clients.size > 0).astype(float)
    for t in range(rounds):
        key, moves, changes = plain.round_key(seed, t), {}, {}
        for i in plain.cohort(seed, t, clients.uid, participants):
            k, (features, y) = 0, clients.train[i]
            if not len(y):
                continue
            w, u, seen = x[k].copy(), np.zeros_like(x0), []
            for rows in plain.batches(plain.local_key(key, clients.uid[i]), len(y), **how):
                g = net.gradient(w, features[rows], y[rows]) + weight_decay * w
                seen.append(g)
                u = momentum * u + (g - own[i] + c[k])
                w = w - lr * u
            if momentum:
                fresh = np.mean(seen, axis=0)
            else:
                fresh = own[i] - c[k] + (x[k] - w) / (len(seen) * lr)
            moves.setdefault(k, []).append((w - x[k], size[i]))
            changes.setdefault(k, []).append((size[i] / size.sum()) * (fresh - own[i]))
            own[i] = fresh
        for k, members in moves.items():
            x[k] = x[k] + server_lr * plain.average(*zip(*members, strict=True))
            c[k] = c[k] + sum(changes[k])
    return np.array(x), np.array(c), np.array(own)
