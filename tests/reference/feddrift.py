"""FedDrift as a plain loop over time steps, clients and models; the linkage is scipy's."""

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from tests.reference import plain


class Server:
    """At most `max_clusters` models (None: a free place), and what is known of each client."""

    def __init__(self, w0, clients, max_clusters):
        self.w0, self.models = w0, [w0.copy()] + [None] * (max_clusters - 1)
        self.born, self.used = [-1] * max_clusters, [-1] * max_clusters
        self.label, self.looked, self.loss = [-1] * clients, [-1] * clients, [np.nan] * clients

    def merge(self, net, clients, takes, there, stay, delta):
        """Makes models that do as well on each other's data one. `takes`: client -> the model whose
        data its data are."""
        compared = [k for k in there if k in takes.values()]
        if len(compared) < 2:
            return
        loss = np.zeros((len(compared),) * 2)
        for a, i in enumerate(compared):
            for b, j in enumerate(compared):
                each = [clients.train[c] for c in takes if takes[c] == j]
                x, y = (np.concatenate(part) for part in zip(*each, strict=True))
                loss[a, b] = net.loss(self.models[i], x, y)
        n = range(len(compared))
        apart = np.array(
            [[max(loss[i, j] - loss[i, i], loss[j, i] - loss[j, j], 0) for j in n] for i in n]
        )
        np.fill_diagonal(apart, 0)
        union = fcluster(linkage(squareform(apart, checks=False), "complete"), delta, "distance")
        for name in set(union):
            joined = [k for k, u in zip(compared, union, strict=True) if u == name]
            if len(joined) == 1:
                continue
            size = [
                sum(clients.size[c] for c, own in enumerate(self.label) if own == k and stay[c])
                for k in joined
            ]
            self.models[joined[0]] = plain.average([self.models[k] for k in joined], size)
            for k in joined[1:]:
                self.models[k] = None
                self.label = [joined[0] if own == k else own for own in self.label]

    def place(self, given):
        """A place for a new model that is not among those `given`, or None."""
        able = [
            k
            for k, m in enumerate(self.models)
            if k not in given and (m is None or k not in self.label)
        ]
        return min(able, key=lambda k: (self.models[k] is not None, self.used[k], k), default=None)


def feddrift(
    net, at, w0, seed, rounds, participants, lr, batch, epochs, max_clusters, delta, every, start
):
    """The server after each round, as (models by place, labels). `at(t)`: the clients in round
    t."""
    server, history = Server(w0, len(at(0).uid), max_clusters), []
    for t in range(rounds):
        clients, step = at(t), t // every
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        there = [k for k, m in enumerate(server.models) if m is not None and server.born[k] < step]
        looking, drifting = [c for c in present if server.looked[c] < step], []
        for c in looking:
            losses = [net.loss(server.models[k], *clients.train[c]) for k in there]
            server.label[c] = there[int(np.argmin(losses))]
            if min(losses) > server.loss[c] + delta or (start == "each" and server.looked[c] < 0):
                drifting.append(c)
            server.looked[c], server.loss[c] = step, min(losses)
        if t % every == 0 and step > 0:
            takes = {c: server.label[c] for c in looking if c not in drifting}
            server.merge(
                net,
                clients,
                takes,
                there,
                [c not in drifting for c in range(len(clients.uid))],
                delta,
            )
        own = {}
        given = [k for k, m in enumerate(server.models) if m is not None and server.born[k] == step]
        begun = list(given)
        for c in sorted(drifting, key=lambda c: clients.uid[c]):
            k = server.place(given)
            if k is not None:
                own[c] = k
                given.append(k)
        for c, k in own.items():
            if k not in begun:
                begun.append(k)
                server.models[k], server.born[k] = w0.copy(), step
            server.label[c] = k
        ends = {c: plain.fit(net, server.models[server.label[c]], clients.train[c], plain.local_key(key, clients.uid[c]),
                             lr, batch, epochs)[0] for c in present}  # fmt: skip
        for k in {server.label[c] for c in present}:
            here = [c for c in present if server.label[c] == k]
            server.models[k] = plain.average([ends[c] for c in here], clients.size[here])
            server.used[k] = step
        history.append((list(server.models), np.array(server.label)))
    return history
