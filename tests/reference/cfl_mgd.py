"""CFL-MGD as a plain loop, both options of Algorithm 1."""

import numpy as np

from tests.reference import plain


def cfl_mgd(net, clients, models, seed, rounds, participants, lr, beta, work, aggregate, estimate):
    """[(models, labels)] after each round; the buffers as a third."""
    models, labels, history = (
        [np.array(m, np.float64) for m in models],
        np.full(len(clients.uid), -1),
        [],
    )
    buffers = [np.zeros_like(m) for m in models]
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        which, seen, trained = {}, {}, {}
        for i in present:
            x, y = clients.train[i]
            mine = plain.local_key(key, clients.uid[i])
            look = np.arange(len(y))
            if estimate == "batch":
                look = look[plain.batches(mine, len(look), work["batch"], steps=1)[0]]
            which[i] = np.argmin([net.loss(w, x[look], y[look]) for w in models])
            labels[i], trained[i], seen[i] = which[i], (x, y), mine
        new, new_buffers = [], []
        for p, (w, u) in enumerate(zip(models, buffers, strict=True)):
            members = [i for i in present if which[i] == p]
            ends = []
            for i in members:
                steps = (
                    work
                    if aggregate == "model"
                    else {"batch": work["batch"] if estimate == "batch" else "full", "steps": 1}
                )
                ends.append(
                    plain.fit(net, w, trained[i], seen[i], lr, momentum=beta, velocity=u, **steps)
                )
            if aggregate == "model":
                new.append(np.mean([e[0] for e in ends], axis=0) if ends else w)
            else:
                new.append(w - lr / len(present) * sum(e[1] for e in ends) if ends else w)
            new_buffers.append(np.mean([e[1] for e in ends], axis=0) if ends else u)
        models, buffers = new, new_buffers
        history.append((np.array(models), labels.copy(), np.array(buffers)))
    return history
