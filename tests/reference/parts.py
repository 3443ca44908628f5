"""Models that are shared in part, as plain loops: each cluster a vector, each client its own
numbers, averaged one by one."""

import numpy as np

from cfljax import keys
from tests.reference import plain, server


def run(
    net,
    clients,
    models,
    seed,
    rounds,
    cohort,
    kinds,
    average,
    lr=0.1,
    batch=5,
    assign=None,
    epochs=1,
    alternate=None,
    adam=False,
):
    """(models [K, d], own vectors [C, d], labels) at the end. `kinds`: "all", "cluster", "client"
    or "frozen" for each number. `assign`: the cluster of each client; None: that of the least loss,
    as in IFCA. `alternate`: (epochs of the head, which numbers are the head's)."""
    shared, home, frozen = (kinds == kind for kind in ("all", "client", "frozen"))
    models = [np.where(shared | home, models[0], m) for m in np.array(models, np.float64)]
    own = np.tile(models[0], (len(clients.uid), 1))
    labels = np.full(len(clients.uid), -1) if assign is None else np.array(assign)
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, cohort)
        trained = {}
        for i in present:
            mine = [np.where(home, own[i], m) for m in models]
            if assign is None:
                labels[i] = np.argmin([net.loss(w, *clients.train[i]) for w in mine])
            own_key = plain.local_key(key, clients.uid[i])
            trained[i] = fit(
                net,
                mine[labels[i]],
                clients.train[i],
                own_key,
                lr,
                batch,
                epochs,
                alternate,
                frozen,
                adam,
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


def fit(net, w, data, key, lr, batch, epochs, alternate, frozen, adam=False):
    """The trained vector. With `alternate` the first epochs move the head alone, and the others the
    rest alone. What is frozen does not move. Head and body each have an optimiser of their own."""
    x, y = data
    first, head = alternate or (0, np.zeros(len(w), bool))
    size = len(y) if batch == "full" else batch
    per_epoch = -(-len(y) // size)
    of_head, of_rest = (
        server.Adam(len(w), lr, 1e-3) if adam else server.Momentum(len(w), lr, 0.0)
        for _ in range(2)
    )
    batches = plain.batches(key, len(y), batch, epochs=first + epochs)
    for number, rows in enumerate(batches):
        g, begins = net.gradient(w, x[rows], y[rows]), number < first * per_epoch
        moves = (head == begins) & ~frozen
        w = w + np.where(moves, (of_head if begins else of_rest).step(np.where(moves, g, 0.0)), 0.0)
    return w


def finetuned(net, clients, models, labels, seed, steps, lr, batch):
    """(accuracy over all test samples, accuracies [C]) after each client has trained the model of
    its label for some steps."""
    key, right, samples = keys.fold(keys.root(seed), "finetune"), [], []
    for i, (x, y) in enumerate(clients.test):
        w = plain.fit(
            net,
            models[labels[i]],
            clients.train[i],
            plain.local_key(key, clients.uid[i]),
            lr,
            batch,
            steps=steps,
        )[0]
        right.append((net.logits(w, x).argmax(1) == y).sum())
        samples.append(len(y))
    return sum(right) / sum(samples), np.array(right) / samples
