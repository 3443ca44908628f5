"""FedSoft as a plain loop: shares by least loss every `tau` rounds, one training per client with a
pull to each cluster model."""

import jax
import numpy as np

from cfljax import keys
from tests.reference import plain


def shares(net, centres, x, y, floor):
    losses = [net.losses(c, x, y) for c in centres]
    won = np.bincount(np.argmin(losses, axis=0), minlength=len(centres)) / len(y)
    return np.maximum(won, floor) / np.maximum(won, floor).sum()


def drawn(key, odds, uid, number):
    """The places that one cluster draws, one after another without replacement: `odds` f64[S, K] of
    all clusters."""
    luck = np.array(
        [
            jax.random.gumbel(keys.fold_in(keys.fold(key, "selection"), int(i)), (odds.shape[1],))
            for i in uid
        ]
    )
    return [
        np.argsort(-(np.log(of) + extra), kind="stable")[:number]
        for of, extra in zip(odds.T, luck.T, strict=True)
    ]


def train(net, w, data, key, lr, batch, epochs, lam, u, centres):
    x, y = data
    for rows in plain.batches(key, len(y), batch, None, epochs):
        pull = sum(lam * each * (w - c) for each, c in zip(u, centres, strict=True))
        w = w - lr * (net.gradient(w, x[rows], y[rows]) + pull)
    return w


def fedsoft(
    net,
    clients,
    centres,
    personal,
    seed,
    rounds,
    participants,
    lr,
    batch,
    epochs,
    tau,
    start,
    lam,
    selected,
    floor,
):
    """(cluster models, personal models, shares, who has trained) after the rounds."""
    centres, personal = (
        [np.array(each, np.float64) for each in centres],
        np.array(personal, np.float64),
    )
    u, trained = np.full((len(clients.uid), len(centres)), 1 / len(centres)), set()
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        if t % tau == 0:
            u = np.array([shares(net, centres, *data, floor) for data in clients.train])
        odds = u[present] * clients.size[present, None]
        groups = drawn(
            key, odds, clients.uid[present], int(np.ceil(selected * len(present) - 1e-4))
        )
        for i in sorted({int(present[s]) for group in groups for s in group}):
            begin = (
                personal[i]
                if start == "own"
                else sum(a * c for a, c in zip(u[i], centres, strict=True))
            )
            own = plain.local_key(key, clients.uid[i])
            personal[i] = train(
                net, begin, clients.train[i], own, lr, batch, epochs, lam, u[i], centres
            )
            trained.add(i)
        centres = [np.mean(personal[present[group]], axis=0) for group in groups]
    return np.array(centres), personal, u, trained
