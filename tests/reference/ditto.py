"""Ditto as a plain loop: FedAvg, and a personal model per client that is pulled to the model it was
sent."""

import numpy as np

from tests.reference import plain


def run(net, federation, w, seed, rounds, participants, lam, lr=0.1):
    """(w, personal models)."""
    clients = plain.Clients(federation)
    personal = [w.copy() for _ in clients.train]
    for t in range(rounds):
        ids, key, updated = (
            plain.cohort(seed, t, clients.uid, participants),
            plain.round_key(seed, t),
            [],
        )
        for i in ids:
            own = plain.local_key(key, clients.uid[i])
            updated.append(plain.fit(net, w, clients.train[i], own, lr, batch=5)[0])
            personal[i] = plain.fit(
                net, personal[i], clients.train[i], own, lr, batch=5, mu=lam, anchor=w
            )[0]
        w = plain.average(updated, clients.size[ids])
    return w, np.array(personal)
