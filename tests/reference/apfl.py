"""APFL as a plain loop: FedAvg, and for each client a model that is trained in a mixture with the
global one."""

import numpy as np

from tests.reference import plain


def run(
    net, federation, w, seed, rounds, participants, alpha, adapt, lr=0.1, weight_decay=0.0, **how
):
    """(w, the models v of the clients, their shares): `how` says the batches, as in
    `plain.batches`."""
    clients = plain.Clients(federation)
    v, share = [w.copy() for _ in clients.train], np.full(len(clients.train), alpha, float)
    for t in range(rounds):
        ids, key, trained = (
            plain.cohort(seed, t, clients.uid, participants),
            plain.round_key(seed, t),
            [],
        )
        for i in ids:
            x, y = clients.train[i]
            mine = w.copy()
            for step, rows in enumerate(
                plain.batches(plain.local_key(key, clients.uid[i]), len(y), **how)
            ):
                a = share[i]
                g = net.gradient(a * v[i] + (1 - a) * mine, x[rows], y[rows])
                if adapt == "round" and step == 0:
                    share[i] = min(1.0, max(0.0, a - lr * float((v[i] - mine) @ g)))
                v[i] = v[i] - lr * (a * g + weight_decay * v[i])
                mine = mine - lr * (net.gradient(mine, x[rows], y[rows]) + weight_decay * mine)
            trained.append(mine)
        w = sum(trained) / len(trained)
    return w, np.array(v), share
