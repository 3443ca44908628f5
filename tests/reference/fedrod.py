"""FedRoD, one client after another."""

import numpy as np

from tests.reference import plain


def fedrod(net, clients_of, w, rounds, participants, lr, classes):
    """(The global model, the models that all clients are scored with); the gradients of the network
    are written out. `clients_of(t)`: the clients with the data that they have in round t."""
    clients = clients_of(0)
    at = w.size - net.layers(w)[1][0].size - net.layers(w)[1][1].size
    heads = np.tile(w[at:], (len(clients.uid), 1))

    def gradients(w, head, x, y, added):
        """Of the body below this head, and of the head, with numbers that are added to the
        outputs."""
        (b, k), (b2, k2) = net.layers(np.append(w[:at], head))
        h = np.maximum(x @ k + b, 0)
        z = h @ k2 + b2 + added
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p = (p / p.sum(axis=1, keepdims=True) - np.eye(classes)[y]) / len(y)
        back = (p @ k2.T) * (h > 0)
        return np.concatenate([back.sum(axis=0), (x.T @ back).ravel()]), np.concatenate(
            [p.sum(axis=0), (h.T @ p).ravel()]
        )

    for t in range(rounds):
        key, trained, clients = plain.round_key(0, t), [], clients_of(t)
        for c in plain.cohort(0, t, clients.uid, participants):
            (x, y), mine = clients.train[c], w.copy()
            with np.errstate(divide="ignore"):
                log_n = np.log(np.bincount(y, minlength=classes))
            for rows in plain.batches(plain.local_key(key, clients.uid[c]), len(y), 5, epochs=1):
                _, by_p = gradients(mine, mine[at:] + heads[c], x[rows], y[rows], 0.0)
                mine = mine - lr * np.concatenate(
                    gradients(mine, mine[at:], x[rows], y[rows], log_n)
                )
                heads[c] -= lr * by_p
            trained.append((mine, clients.size[c]))
        w = plain.average(*zip(*trained, strict=True))
    own = [np.append(w[:at], w[at:] + heads[c]) for c in range(len(heads))]
    return w, np.array(own)
