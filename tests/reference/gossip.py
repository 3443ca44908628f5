"""Gossip as a plain loop: local training, and a mean with the neighbours by Metropolis weights. The
graph is a set of pairs of clients' numbers."""

import numpy as np

from cfljax import keys
from tests.reference import plain


def edge(a, b):
    return frozenset((int(a), int(b)))


def cycle(members):
    """The edges of a ring."""
    return {edge(a, b) for a, b in zip(members, np.roll(members, -1), strict=True)}


def shuffled(members, key):
    """The members in the order of random numbers of their own."""
    scores = np.asarray(keys.scores(key, "client", np.asarray(members)))
    return np.asarray(members)[np.argsort(scores, kind="stable")]


def edges(topology, everybody, present, key, neighbours=4):
    """The edges of the graph; those with a client that is not present do not count."""
    everybody, present = np.sort(everybody), np.sort(present)
    found = set()
    if topology == "ring":
        found = cycle(everybody)
    elif topology == "torus":
        n = len(everybody)
        rows = max(r for r in range(1, n + 1) if n % r == 0 and r * r <= n)
        grid = everybody.reshape(rows, -1)
        for line in (*grid, *grid.T):
            found |= cycle(line)
    else:
        for i in range(neighbours // 2):
            found |= cycle(shuffled(present, keys.fold(key, "gossip", i)))
        if neighbours % 2:
            order = shuffled(present, keys.fold(key, "gossip", neighbours // 2))
            found |= {edge(*order[i : i + 2]) for i in range(0, len(order) - 1, 2)}
    return {each for each in found if len(each) == 2 and each <= set(present.tolist())}


def matrix(members, pairs):
    """f64[n, n] the Metropolis weights among some clients."""
    degree = {i: sum(i in each for each in pairs) for i in members}
    weights = np.zeros((len(members), len(members)))
    for a, i in enumerate(members):
        for b, j in enumerate(members):
            if edge(i, j) in pairs:
                weights[a, b] = 1 / (1 + max(degree[i], degree[j]))
        weights[a, a] = 1 - weights[a].sum()
    return weights


def run(net, federation, w, seed, rounds, participants, lr=0.1, **graph):
    """The model that each client is scored with, the messages of each round, and the distance of
    the models to their mean after it."""
    clients = plain.Clients(federation)
    everybody = [int(u) for u, n in zip(clients.uid, clients.size, strict=True) if n]
    own, drawn = np.array([w.copy() for _ in clients.train]), np.zeros(len(clients.train), bool)
    messages, apart = [], []
    for t in range(rounds):
        ids, key = plain.cohort(seed, t, clients.uid, participants), plain.round_key(seed, t)
        for i in ids:
            local = plain.local_key(key, clients.uid[i])
            own[i] = plain.fit(net, own[i], clients.train[i], local, lr, batch=5)[0]
        present = clients.uid[ids].tolist()
        pairs = edges(everybody=everybody, present=present, key=key, **graph)
        own[ids] = matrix(present, pairs) @ own[ids]
        drawn[ids] = True
        messages.append(2 * len(pairs))
        mean = own[drawn].mean(axis=0)
        apart.append(np.sqrt(((own[drawn] - mean) ** 2).sum(axis=1).mean()))
    average = plain.average(own[drawn], clients.size[drawn])
    return np.where(drawn[:, None], own, average), messages, apart
