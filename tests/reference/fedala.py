"""FedALA, one client after another."""

import numpy as np

from tests.reference import plain


def fedala(net, clients, w, rounds, participants, lr, eta, share, first_epochs):
    """(The global model, the models that all clients are scored with, their weights)."""
    at, n = w.size - net.layers(w)[1][0].size - net.layers(w)[1][1].size, len(clients.uid)
    own, weights, times = np.tile(w, (n, 1)), np.ones((n, w.size - at)), np.zeros(n, int)
    begin = lambda c: np.append(w[:at], own[c][at:] + (w - own[c])[at:] * weights[c])  # noqa: E731
    for t in range(rounds):
        key, trained = plain.round_key(0, t), []
        for c in plain.cohort(0, t, clients.uid, participants):
            x, y = clients.train[c]
            epochs = 0 if not times[c] else first_epochs if times[c] == 1 else 1
            steps = int(np.ceil(share * epochs * -(-len(y) // 5) - 1e-3))
            for rows in plain.batches(
                plain.local_key(plain.keys.fold(key, "weights"), clients.uid[c]),
                len(y),
                5,
                steps=steps,
            ):
                slope = net.gradient(begin(c), x[rows], y[rows])[at:] * (w - own[c])[at:]
                weights[c] = np.clip(weights[c] - eta * slope, 0, 1)
            own[c] = plain.fit(
                net, begin(c), (x, y), plain.local_key(key, clients.uid[c]), lr, batch=5
            )[0]
            times[c] += 1
            trained.append((own[c].copy(), clients.size[c]))
        w = plain.average(*zip(*trained, strict=True))
    return w, np.array([begin(c) for c in range(n)]), weights
