"""FedAvg whose clients send the largest numbers of their updates and keep the rest for the next
(error feedback), one client after another."""

import math

import numpy as np

from tests.reference import plain


def largest(row, keep):
    """The row f64[d] with zeros in place of all but the share `keep` of its numbers, the largest
    ones."""
    kept = np.argsort(-np.abs(row), kind="stable")[: max(1, math.ceil(keep * len(row) - 1e-6))]
    out = np.zeros_like(row)
    out[kept] = row[kept]
    return out


def fedavg(net, clients, w, rounds, participants, lr, keep, seed=0, broken=(), **local):
    """(model, residuals of all clients, all true updates summed by client, all sent ones) after
    each round. `broken`: clients whose updates are not finite."""
    residual, true, sent = (np.zeros((len(clients.uid), len(w))) for _ in range(3))
    history = []
    for t in range(rounds):
        key, total, weight = plain.round_key(seed, t), np.zeros_like(w), 0.0
        for c in plain.cohort(seed, t, clients.uid, participants):
            if c in broken:
                continue
            end, _ = plain.fit(
                net, w, clients.train[c], plain.local_key(key, clients.uid[c]), lr, **local
            )
            whole = end - w + residual[c]
            told = largest(whole, keep)
            residual[c] = whole - told
            true[c] += end - w
            sent[c] += told
            total, weight = total + clients.size[c] * told, weight + clients.size[c]
        w = w + total / weight
        history.append((w.copy(), residual.copy(), true.copy(), sent.copy()))
    return history
