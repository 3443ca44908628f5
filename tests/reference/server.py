"""Servers with an optimiser, and FedNova, as plain loops: FedAvg and IFCA whose means are
gradients, or normalised by steps."""

import numpy as np

from tests.reference import plain


class Momentum:
    """FedAvgM."""

    def __init__(self, d, lr, beta):
        self.u, self.lr, self.beta = np.zeros(d), lr, beta

    def step(self, g):
        self.u = self.beta * self.u + g
        return -self.lr * self.u


class Adam:
    """FedAdam, with the bias correction of Adam; FedYogi: `yogi`, whose means begin at 1e-6."""

    def __init__(self, d, lr, eps, yogi=False, b1=0.9, b2=0.999):
        begin = 1e-6 if yogi else 0.0
        self.m, self.v, self.t = np.full(d, begin), np.full(d, begin), 0
        self.lr, self.eps, self.yogi, self.b1, self.b2 = lr, eps, yogi, b1, b2

    def step(self, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        square = g**2
        toward = np.sign(square - self.v) * square if self.yogi else square - self.v
        self.v = self.v + (1 - self.b2) * toward
        mean, spread = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        return -self.lr * mean / (np.sqrt(spread) + self.eps)


class Adagrad:
    """FedAdagrad."""

    def __init__(self, d, lr, eps, begin=0.1):
        self.sum, self.lr, self.eps = np.full(d, begin), lr, eps

    def step(self, g):
        self.sum = self.sum + g**2
        return -self.lr * g / np.sqrt(self.sum + self.eps)


class Printed:
    """FedAdam, FedYogi and FedAdagrad as in Algorithm 2 of Reddi et al., whose Δ is −g."""

    def __init__(self, d, lr, kind, b1, b2=0.99, tau=1e-3):
        self.m, self.v = np.zeros(d), np.full(d, tau**2)
        self.lr, self.kind, self.b1, self.b2, self.tau = lr, kind, b1, b2, tau

    def step(self, g):
        delta = -g
        self.m = self.b1 * self.m + (1 - self.b1) * delta
        if self.kind == "adagrad":
            self.v = self.v + delta**2
        elif self.kind == "yogi":
            self.v = self.v - (1 - self.b2) * delta**2 * np.sign(self.v - delta**2)
        else:
            self.v = self.b2 * self.v + (1 - self.b2) * delta**2
        return self.lr * self.m / (np.sqrt(self.v) + self.tau)


def run(
    net,
    clients,
    models,
    seed,
    rounds,
    participants,
    server,
    average="samples",
    shared=None,
    lr=0.1,
    batch=5,
):
    """[models after each round, members of each cluster in it]. With several models each
    participant takes the one of least loss. `server(n)` makes an optimiser of n numbers. `shared`
    bool[d]: what everybody shares."""
    models, history = np.array(models, np.float64), []
    d = models.shape[1]
    shared = np.zeros(d, bool) if shared is None else shared
    models[:, shared] = models[0, shared]
    own, common = [server(int((~shared).sum())) for _ in models], server(int(shared.sum()))
    weight = clients.size if average == "samples" else np.ones(len(clients.size))
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        which = np.array(
            [np.argmin([net.loss(w, *clients.train[i]) for w in models]) for i in present]
        )
        trained = [
            plain.fit(
                net, models[k], clients.train[i], plain.local_key(key, clients.uid[i]), lr, batch
            )[0]
            for i, k in zip(present, which, strict=True)
        ]
        new = models.copy()
        for k in range(len(models)):
            members = np.flatnonzero(which == k)
            if len(members):
                mean = plain.average([trained[i] for i in members], weight[present[members]])
                new[k, ~shared] += own[k].step((models[k] - mean)[~shared])
        if shared.any():
            mean = plain.average(trained, weight[present])
            new[:, shared] += common.step((models[0] - mean)[shared])
        models = new
        history.append((models.copy(), np.bincount(which, minlength=len(models))))
    return history


def length(steps, lr, momentum=0.0, mu=0.0):
    """‖a_i‖₁ for that many steps: each gradient followed on its own to the end of training."""
    total = 0.0
    for first in range(steps):
        x = u = 0.0
        for step in range(first, steps):
            u = momentum * u + float(step == first) + mu * x
            x = x - lr * u
        total += abs(x) / lr
    return total


def nova(
    net,
    clients,
    models,
    seed,
    rounds,
    participants,
    work,
    lr=0.1,
    batch=5,
    epochs=2,
    momentum=0.0,
    mu=0.0,
    normalise=True,
):
    """[models after each round] of FedNova, in IFCA's clusters if there are several models.
    `work(key, uid)`: the share of its steps that a participant does. Without `normalise` it is the
    mean by samples."""
    models, history = [np.array(m, np.float64) for m in models], []
    for t in range(rounds):
        key, present = plain.round_key(seed, t), plain.cohort(seed, t, clients.uid, participants)
        moves = {k: [] for k in range(len(models))}
        for i in present:
            k = int(np.argmin([net.loss(w, *clients.train[i]) for w in models]))
            full = epochs * -(-len(clients.train[i][1]) // batch)
            steps = max(1, int(np.ceil(work(key, clients.uid[i]) * full - 1e-3)))
            own = plain.local_key(key, clients.uid[i])
            w, _ = plain.fit(
                net,
                models[k],
                clients.train[i],
                own,
                lr,
                batch,
                steps=steps,
                momentum=momentum,
                mu=mu,
            )
            moves[k].append(
                (
                    clients.size[i],
                    length(steps, lr, momentum, mu) if normalise else 1.0,
                    w - models[k],
                )
            )
        for k, members in moves.items():
            if members:
                p = np.array([size for size, _, _ in members]) / sum(size for size, _, _ in members)
                tau = sum(q * a for q, (_, a, _) in zip(p, members, strict=True))
                models[k] = models[k] + tau * sum(
                    q * move / a for q, (_, a, move) in zip(p, members, strict=True)
                )
        history.append(np.array(models))
    return history
