"""FedAMP as a plain loop: mixtures of all trained models by attention, and local training with a
pull to them."""

import numpy as np

from tests.reference import plain


def mixture(own, drawn, i, alpha, sigma):
    """u_i."""
    weights = {
        j: alpha / sigma * np.exp(-((own[i] - own[j]) ** 2).sum() / sigma)
        for j in range(len(own))
        if j != i and drawn[j]
    }
    total = sum(weights.values())
    if total > 1:
        weights, total = {j: v / total for j, v in weights.items()}, 1.0
    return (1 - total) * own[i] + sum(v * own[j] for j, v in weights.items())


def run(net, federation, w, seed, rounds, participants, alpha, sigma, lam, lr=0.1):
    """The model that each client is scored with."""
    clients = plain.Clients(federation)
    own, drawn = [w.copy() for _ in clients.train], np.zeros(len(clients.train), bool)
    for t in range(rounds):
        ids, key = plain.cohort(seed, t, clients.uid, participants), plain.round_key(seed, t)
        anchors = {i: mixture(own, drawn, i, alpha, sigma) for i in ids}
        for i in ids:
            local = plain.local_key(key, clients.uid[i])
            own[i] = plain.fit(
                net, own[i], clients.train[i], local, lr, batch=5, mu=lam / alpha, anchor=anchors[i]
            )[0]
        drawn[ids] = True
    mean = plain.average(
        [m for m, there in zip(own, drawn, strict=True) if there], clients.size[drawn]
    )
    return np.array([m if there else mean for m, there in zip(own, drawn, strict=True)])
