"""Per-FedAvg as a plain loop: each step follows the gradient at the place to which a step ahead
leads."""

import numpy as np

from tests.reference import plain


def product(net, w, x, y, direction, tiny=1e-5):
    """The matrix of second derivatives times a direction, by central differences."""
    return (net.gradient(w + tiny * direction, x, y) - net.gradient(w - tiny * direction, x, y)) / (
        2 * tiny
    )


def run(net, federation, w, seed, rounds, participants, alpha, hessian, lr=0.1, **how):
    """(w, the models one own step away): `how` says the batches, as in `plain.batches`."""
    clients = plain.Clients(federation)
    for t in range(rounds):
        ids, key, trained = (
            plain.cohort(seed, t, clients.uid, participants),
            plain.round_key(seed, t),
            [],
        )
        for i in ids:
            x, y = clients.train[i]
            mine = w.copy()
            for rows in plain.batches(plain.local_key(key, clients.uid[i]), len(y), **how):
                first, second = (rows, rows) if len(rows) == 1 else (rows[0::2], rows[1::2])
                ahead = mine - alpha * net.gradient(mine, x[first], y[first])
                g = net.gradient(ahead, x[second], y[second])
                if hessian:
                    g = g - alpha * product(net, mine, x[first], y[first], g)
                mine = mine - lr * g
            trained.append(mine)
        w = sum(trained) / len(trained)
    own = [w if not len(y) else w - alpha * net.gradient(w, x, y) for x, y in clients.train]
    return w, np.array(own)
