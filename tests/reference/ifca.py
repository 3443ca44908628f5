"""IFCA as a plain loop: choose by loss, train or take one gradient, average."""

import numpy as np

from cfljax import keys
from tests.reference import plain


def reseed(key, which, uid, clusters, rule):
    """K distinct participants, one into each cluster, when the rule says so."""
    enough = len(uid) >= clusters and rule != "never"
    if not enough or (rule == "when_empty" and len(set(which)) == clusters):
        return which
    order = np.lexsort((uid, np.asarray(keys.scores(key, "reseed", uid))))
    which[order[:clusters]] = np.arange(clusters)
    return which


def ifca(
    net,
    clients,
    models,
    seed,
    rounds,
    participants,
    lr,
    batch,
    epochs,
    estimate,
    aggregate,
    average,
    reseeding,
):
    """[(models, labels)] after each round."""
    models, labels, history = (
        [np.array(m, np.float64) for m in models],
        np.full(len(clients.uid), -1),
        [],
    )
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        seen = {}
        for i in present:
            (x, y), own = clients.train[i], plain.local_key(key, clients.uid[i])
            rows = (
                plain.batches(own, len(y), batch, steps=1)[0]
                if estimate == "batch"
                else np.arange(len(y))
            )
            seen[i] = own, x[rows], y[rows]
        which = np.array([np.argmin([net.loss(w, *seen[i][1:]) for w in models]) for i in present])
        which = reseed(key, which, clients.uid[present], len(models), reseeding)
        labels[present] = which
        weight = clients.size if average == "samples" else np.ones(len(clients.size))
        new = []
        for k, w in enumerate(models):
            members = present[which == k]
            if aggregate == "gradient":
                total = sum(weight[i] * net.gradient(w, *seen[i][1:]) for i in members)
                new.append(w - lr * total / weight[present].sum() if len(members) else w)
            else:
                local = [
                    plain.fit(net, w, clients.train[i], seen[i][0], lr, batch, epochs)[0]
                    for i in members
                ]
                new.append(plain.average(local, weight[members]) if local else w)
        models = new
        history.append((np.array(models), labels.copy()))
    return history
