"""MOON, one client after another."""

import numpy as np

from tests.reference import plain


def moon(net, clients, w, rounds, participants, lr, mu, tau):
    """The global model, from one sample's contrast after another."""
    last = np.tile(w, (len(clients.uid), 1))

    def slope(z, near, far):
        """The gradient by z of log(e^(cos(z, near)/tau) + e^(cos(z, far)/tau)) − cos(z,
        near)/tau."""
        size, cos = np.linalg.norm, lambda a, b: a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
        of = lambda o: o / (size(z) * size(o)) - cos(z, o) * z / size(z) ** 2  # noqa: E731
        heavy = np.exp(cos(z, far) / tau) / (np.exp(cos(z, far) / tau) + np.exp(cos(z, near) / tau))
        return heavy * (of(far) - of(near)) / tau

    for t in range(rounds):
        key, trained = plain.round_key(0, t), []
        for c in plain.cohort(0, t, clients.uid, participants):
            (x, y), mine = clients.train[c], w
            for rows in plain.batches(plain.local_key(key, clients.uid[c]), len(y), 5, epochs=1):
                each = zip(
                    *(net.features(model, x[rows]) for model in (mine, w, last[c])), strict=True
                )
                mine = mine - lr * net.gradient(
                    mine, x[rows], y[rows], more=mu * np.array([slope(*three) for three in each])
                )
            last[c] = mine
            trained.append((mine, clients.size[c]))
        w = plain.average(*zip(*trained, strict=True))
    return w
