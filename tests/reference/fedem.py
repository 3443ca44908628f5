"""FedEM as a plain loop: every participant weighs its samples by the models that explain them, and
trains all models."""

import numpy as np

from tests.reference import plain


def softmax(z):
    p = np.exp(z - z.max(axis=0))
    return p / p.sum(axis=0)


def fedem(net, clients, models, seed, rounds, participants, lr, batch, epochs):
    """(models, mixtures f64[C, K]) after the rounds."""
    models = [np.array(m, np.float64) for m in models]
    mixture = np.full((len(clients.uid), len(models)), 1 / len(models))
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        trained = [[] for _ in models]
        for i in present:
            q = softmax(
                np.log(mixture[i])[:, None]
                - np.array([net.losses(w, *clients.train[i]) for w in models])
            )
            mixture[i] = q.mean(axis=1)
            for k, w in enumerate(models):
                own = plain.local_key(key, clients.uid[i])
                trained[k].append(
                    plain.fit(net, w, clients.train[i], own, lr, batch, epochs, weights=q[k])[0]
                )
        models = [plain.average(each, clients.size[present]) for each in trained]
    return np.array(models), mixture


def scores(net, clients, models, mixture):
    """(share of right answers, mean loss) over all test samples, each client with its mixture of
    the models' probabilities."""
    right, loss, total = 0, 0.0, 0
    for c, (x, y) in enumerate(clients.test):
        p = sum(
            share * softmax(net.logits(w, x).T).T
            for share, w in zip(mixture[c], models, strict=True)
        )
        right += (p.argmax(axis=1) == y).sum()
        loss -= np.log(p[np.arange(len(y)), y]).sum()
        total += len(y)
    return right / total, loss / total
