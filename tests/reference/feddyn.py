"""FedDyn as a plain loop, with the gradient of its linear and its quadratic term at each step."""

import numpy as np

from tests.reference import plain


def run(
    net,
    federation,
    w0,
    seed,
    rounds,
    participants,
    alpha,
    lr=0.1,
    momentum=0.0,
    weight_decay=0.0,
    **how,
):
    """(models w, server vectors h, of the one cluster; the clients' h_i): `how` says the
    batches, as in `plain.batches`."""
    clients = plain.Clients(federation)
    number = len(clients.train)
    w = [w0.copy()]
    h, own = [np.zeros_like(w0) for _ in w], [np.zeros_like(w0) for _ in range(number)]
    for t in range(rounds):
        key, trained = plain.round_key(seed, t), {}
        for i in plain.cohort(seed, t, clients.uid, participants):
            k, (x, y) = 0, clients.train[i]
            if not len(y):
                continue
            mine, u = w[k].copy(), np.zeros_like(w0)
            for rows in plain.batches(plain.local_key(key, clients.uid[i]), len(y), **how):
                g = (
                    net.gradient(mine, x[rows], y[rows])
                    + weight_decay * mine
                    - own[i]
                    + alpha * (mine - w[k])
                )
                u = momentum * u + g
                mine = mine - lr * u
            own[i] = own[i] - alpha * (mine - w[k])
            trained.setdefault(k, []).append(mine)
        for k, mine in trained.items():
            trains = (clients.size > 0).sum()
            h[k] = h[k] - alpha * sum(each - w[k] for each in mine) / trains
            w[k] = sum(mine) / len(mine) - h[k] / alpha
    return np.array(w), np.array(h), np.array(own)
