"""StoCFL as a plain loop: clusters as lists of clients, united pair by pair as in the authors'
program, two trainings a round."""

import numpy as np

from cfljax import keys
from tests.reference import plain


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def unite(clusters, psi, models, tau):
    """Unites clusters (lists of clients, in the order of their places) by the cosines of their
    means before any union."""
    mean = [np.mean([psi[i] for i in members], axis=0) for members in clusters]
    pairs = [(cosine(mean[a], mean[b]), a, b) for b in range(len(mean)) for a in range(b)]
    into = list(range(len(clusters)))
    clusters, models = [list(c) for c in clusters], list(models)
    for similar, a, b in sorted(pairs, key=lambda pair: -pair[0]):
        i, j = sorted((into[a], into[b]))
        if similar < tau or i == j:
            continue
        if models[j] is not None and len(clusters[j]) > len(clusters[i]):
            models[i] = models[j]
        clusters[i], clusters[j], into = (
            clusters[i] + clusters[j],
            [],
            [i if k == j else k for k in into],
        )
    left = [i for i in range(len(clusters)) if clusters[i]]
    return [clusters[i] for i in left], [models[i] for i in left]


def stocfl(
    net, clients, w0, seed, rounds, participants, lr, batch, epochs, tau, lam, first, average
):
    """(clusters as sets of clients -> model, global model, ψ by client) after each round."""
    w, psi, clusters, models, history = w0.copy(), {}, [], [], []
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        own = {i: plain.local_key(key, clients.uid[i]) for i in present}
        for i in sorted(set(present) - set(psi)):
            local = plain.local_key(keys.fold(key, "pretrain"), clients.uid[i])
            psi[i] = plain.fit(net, w0, clients.train[i], local, lr, batch, first)[0] - w0
            clusters, models = [*clusters, [i]], [*models, None]
        clusters, models = unite(clusters, psi, models, tau)
        models = [w if m is None else m for m in models]
        weight = {i: clients.size[i] if average == "samples" else 1.0 for i in present}
        for k, members in enumerate(clusters):
            here = [i for i in present if i in members]
            ends = [
                plain.fit(
                    net, models[k], clients.train[i], own[i], lr, batch, epochs, mu=lam, anchor=w
                )[0]
                for i in here
            ]
            if here:
                models[k] = plain.average(ends, [weight[i] for i in here])
        ends = [plain.fit(net, w, clients.train[i], own[i], lr, batch, epochs)[0] for i in present]
        w = plain.average(ends, [weight[i] for i in present])
        history.append(
            (
                {frozenset(map(int, c)): m for c, m in zip(clusters, models, strict=True)},
                w,
                dict(psi),
            )
        )
    return history
