"""Joint gradient and loss clustering as a plain loop: K losses and gradients of one mini-batch,
argmax, one step, average."""

import numpy as np

from tests.reference import plain
from tests.reference.ifca import reseed


def cosine(a, b):
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / size if size > 0 else 0.0


def similarity(gradient, last, how, lr):
    if how == "euclidean":
        return -np.linalg.norm(-lr * gradient - last)
    return cosine(-gradient if how == "descent" else gradient, last)


def joint(
    net,
    clients,
    models,
    seed,
    rounds,
    participants,
    lr,
    batch,
    lam,
    how,
    summed,
    reseeding,
    steps=1,
    average="uniform",
    decay=0.0,
):
    """[(models, labels)] after each round; decay/2 · ‖w‖² is the model's penalty, which is added to
    a batch's loss once."""
    gradient = lambda w, x, y, n: n * net.gradient(w, x, y) + decay * w  # noqa: E731
    models, labels, history = (
        [np.array(m, np.float64) for m in models],
        np.full(len(clients.uid), -1),
        [],
    )
    last = [np.zeros_like(m) for m in models]
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        stream, score = {}, np.zeros((len(models), len(present)))
        for s, i in enumerate(present):
            x, y = clients.train[i]
            rows = plain.batches(plain.local_key(key, clients.uid[i]), len(y), batch, steps=steps)
            stream[i] = [(x[r], y[r], len(r) if summed else 1) for r in rows]
            x, y, n = stream[i][0]
            for k, w in enumerate(models):
                near = similarity(gradient(w, x, y, n), last[k], how, lr) if np.any(last) else 0.0
                score[k, s] = lam * near - (1 - lam) * n * net.loss(w, x, y)
        which = reseed(key, score.argmax(axis=0), clients.uid[present], len(models), reseeding)
        labels[present] = which
        new = []
        for k, w in enumerate(models):
            local = []
            for i in present[which == k]:
                own = w
                for x, y, n in stream[i]:
                    own = own - lr * gradient(own, x, y, n)
                local.append(own)
            weight = (
                clients.size[present[which == k]] if average == "samples" else np.ones(len(local))
            )
            new.append(plain.average(local, weight) if local else w)
        last, models = [b - a for a, b in zip(models, new, strict=True)], new
        history.append((np.array(models), labels.copy()))
    return history
