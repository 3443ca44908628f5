"""FeSEM as a plain loop: K centres drawn apart from w_0, the centre nearest to the last local weights, local training from it, the
mean of the members."""

import numpy as np

from cfljax import keys
from tests.reference import plain


def starts(init, seed, clusters):
    """(w_0, the centres): w_0 is the draw number 0 of the seed, which every method starts from; the centres are later ones."""
    draws = [np.array(init(keys.fold(keys.root(seed), "model", k)), np.float64) for k in range(clusters + 1)]
    return draws[0], draws[1:]


def fesem(net, clients, centres, w0, seed, rounds, participants, lr, batch, epochs, average, fesem_init):
    """[(centres, labels)] after each round, and the clients' last weights."""
    centres, labels, history = [np.array(m, np.float64) for m in centres], np.full(len(clients.uid), -1), []
    own = [np.array(w0, np.float64) for _ in clients.uid]
    if fesem_init == "own":
        key = keys.fold(keys.root(seed), "own")
        own = [
            plain.fit(net, w, d, plain.local_key(key, u), lr, batch, 1)[0]
            for w, d, u in zip(own, clients.train, clients.uid, strict=True)
        ]
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        for i in present:
            labels[i] = np.argmin([np.linalg.norm(own[i] - c) for c in centres])
            own[i], _ = plain.fit(
                net, centres[labels[i]], clients.train[i], plain.local_key(key, clients.uid[i]), lr, batch, epochs
            )
        for k in range(len(centres)):
            members = [i for i in present if labels[i] == k]
            if members:
                weight = clients.size[members] if average == "samples" else np.ones(len(members))
                centres[k] = plain.average([own[i] for i in members], weight)
        history.append((np.array(centres), labels.copy()))
    return history, np.array(own)
