"""pFedMe as a plain loop: personal models near a global one, which follows them."""

import numpy as np

from tests.reference import plain


def run(net, federation, w, seed, rounds, participants, lam, eta, beta, inner_steps, lr=0.1, **how):
    """(w, the personal models): `how` says the batches, as in `plain.batches`."""
    clients = plain.Clients(federation)
    personal = [w.copy() for _ in clients.train]
    for t in range(rounds):
        ids, key, trained = (
            plain.cohort(seed, t, clients.uid, participants),
            plain.round_key(seed, t),
            [],
        )
        for i in ids:
            x, y = clients.train[i]
            near, theta = w.copy(), w.copy()
            for rows in plain.batches(plain.local_key(key, clients.uid[i]), len(y), **how):
                for _ in range(inner_steps):
                    theta = theta - lr * (
                        net.gradient(theta, x[rows], y[rows]) + lam * (theta - near)
                    )
                near = near - eta * lam * (near - theta)
            personal[i] = theta
            trained.append(near)
        w = (1 - beta) * w + beta * sum(trained) / len(trained)
    return w, np.array(personal)
