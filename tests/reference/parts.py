"""Models that are shared in part, as plain loops: each cluster a vector, each client its own numbers, averaged one by one."""

import numpy as np

from tests.reference import plain


def run(net, clients, models, seed, rounds, participants, kinds, average, lr=0.1, batch=5, assign=None, epochs=1, alternate=None):
    """(models [K, d], own vectors [C, d], labels) at the end. `kinds`: "all", "cluster" or "client" for each of the d numbers.
    `assign`: the cluster of each client; None: that of the least loss, as in IFCA. `alternate`: (epochs of the head, which numbers
    are the head's)."""
    shared, home = kinds == "all", kinds == "client"
    models = [np.where(kinds == "cluster", m, models[0]) for m in np.array(models, np.float64)]
    own = np.tile(models[0], (len(clients.uid), 1))
    labels = np.full(len(clients.uid), -1) if assign is None else np.array(assign)
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        trained = {}
        for i in present:
            mine = [np.where(home, own[i], m) for m in models]
            if assign is None:
                labels[i] = np.argmin([net.loss(w, *clients.train[i]) for w in mine])
            trained[i] = fit(
                net, mine[labels[i]], clients.train[i], plain.local_key(key, clients.uid[i]), lr, batch, epochs, alternate
            )
        weight = clients.size if average == "samples" else np.ones(len(clients.size))
        new = []
        for k, m in enumerate(models):
            members = [i for i in present if labels[i] == k]
            mean = plain.average([trained[i] for i in members], weight[members]) if members else m
            new.append(np.where(home, m, mean))
        everybody = plain.average([trained[i] for i in present], weight[present])
        models = [np.where(shared, everybody, m) for m in new]
        for i in present:
            own[i] = trained[i]
    return np.array(models), own, labels


def fit(net, w, data, key, lr, batch, epochs, alternate):
    """The trained vector. With `alternate` the first epochs move the head alone, and the others the rest alone."""
    if alternate is None:
        return plain.fit(net, w, data, key, lr, batch, epochs)[0]
    x, y = data
    first, head = alternate
    per_epoch = -(-len(y) // batch)
    for number, rows in enumerate(plain.batches(key, len(y), batch, epochs=first + epochs)):
        g = net.gradient(w, x[rows], y[rows])
        w = w - lr * np.where(head == (number < first * per_epoch), g, 0.0)
    return w
