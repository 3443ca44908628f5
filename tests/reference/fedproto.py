"""FedProto, one client after another."""

import numpy as np

from tests.reference import plain


def fedproto(net, clients, w, rounds, participants, lr, lam):
    """(The clients' models, the global prototypes of the classes, the numbers sent down and up)."""
    own, protos, sent = np.tile(w, (len(clients.uid), 1)), {}, [0, 0]
    for t in range(rounds):
        key, theirs = plain.round_key(0, t), {}
        present = plain.cohort(0, t, clients.uid, participants)
        sent[0] += len(present) * sum(len(each) for each in protos.values())
        for c in present:
            x, y = clients.train[c]
            for rows in plain.batches(plain.local_key(key, clients.uid[c]), len(y), 5, epochs=1):
                z = net.features(own[c], x[rows])
                to = np.array(
                    [protos.get(label, here) for label, here in zip(y[rows], z, strict=True)]
                )
                own[c] = own[c] - lr * net.gradient(
                    own[c], x[rows], y[rows], more=lam * 2 * (z - to) / z.shape[1]
                )
            for label in set(y):
                theirs.setdefault(label, []).append(
                    net.features(own[c], x[y == label]).mean(axis=0)
                )
        sent[1] += sum(len(each) for group in theirs.values() for each in group)
        protos |= {label: np.mean(group, axis=0) for label, group in theirs.items()}
    return own, protos, sent
