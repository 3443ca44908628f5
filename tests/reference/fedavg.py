"""FedAvg, FedProx, oracle and local training, one client after another."""

import numpy as np

from tests.reference import plain


def fedavg(
    net,
    clients,
    w0,
    rounds,
    participants,
    lr,
    seed=0,
    average="samples",
    labels=None,
    lr_decay=1.0,
    factors=None,
    losses=None,
    **local,
):
    """Models after each round; `labels` gives each client's cluster (one cluster without);
    `factors`: what multiplies the learning rate in each round; `losses`: a list that gets the mean
    training loss of each round."""
    labels = np.zeros(len(clients.uid), int) if labels is None else labels
    models, history = [w0.copy() for _ in range(labels.max() + 1)], []
    for t in range(rounds):
        key, updates, of_clients = plain.round_key(seed, t), {}, {}
        for c in plain.cohort(seed, t, clients.uid, participants):
            start, of_samples = models[labels[c]], []
            w, _ = plain.fit(
                net,
                start,
                clients.train[c],
                plain.local_key(key, clients.uid[c]),
                lr * (lr_decay**t if factors is None else factors[t]),
                losses=of_samples,
                **local,
            )
            of_clients[c] = np.mean(of_samples)
            updates.setdefault(labels[c], []).append(
                (w, clients.size[c] if average == "samples" else 1.0)
            )
        for k, members in updates.items():
            models[k] = plain.average(*zip(*members, strict=True))
        history.append([w.copy() for w in models])
        if losses is not None:
            who = list(of_clients)
            losses.append(plain.average([of_clients[c] for c in who], clients.size[who]))
    return history


def alone(net, clients, w0, rounds, participants, lr, seed=0, **local):
    """Each client's own model after all rounds."""
    models = [w0.copy() for _ in clients.uid]
    for t in range(rounds):
        key = plain.round_key(seed, t)
        for c in plain.cohort(seed, t, clients.uid, participants):
            models[c], _ = plain.fit(
                net, models[c], clients.train[c], plain.local_key(key, clients.uid[c]), lr, **local
            )
    return models
