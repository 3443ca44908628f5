"""The methods of a whole run: `start(world)` makes one, `round(t)` trains it, `models` and `labels` say what it has found."""

from typing import NamedTuple

import numpy as np

from cfljax import keys
from tests.reference import plain
from tests.reference.ifca import reseed


class Told(NamedTuple):
    """What a round tells of itself; of nobody's training there is nothing to tell."""

    train_loss: float = np.nan
    after: float = np.nan
    """Mean distance of what participants sent from what became of their model."""
    start: float = np.nan
    """Mean length of what they sent."""
    down: int = 0
    up: int = 0
    """Models sent."""


class Rounds:
    """One model for each cluster; a subclass says who is in which."""

    scores = "own"
    """How clients without a cluster get a model: "own" (they have one), "loss" or "distance"."""
    chooses = True
    """Whether clients that never train choose one by their test samples."""

    def __init__(self, world):
        self.world, self.models = world, [world.start(0)]
        self.labels, self.average = np.zeros(len(world.uid), int), world.method.get("average", "samples")

    def choose(self, t, ids):
        """Which cluster each participant joins."""
        return self.labels[ids]

    def fits(self, t, ids, work, which, **more):
        """(updates that the server gets, buffers, losses) of participants that start from their clusters' models."""
        made = [self.world.learn(t, i, self.models[k], work[i], **more) for i, k in zip(ids, which, strict=True)]
        key = plain.round_key(self.world.seed, t)
        rows = [self.world.sent(i, delta, key) for i, (delta, _, _) in zip(ids, made, strict=True)]
        return np.array(rows).reshape(len(ids), self.world.d), [u for _, u, _ in made], [loss for _, _, loss in made]

    def round(self, t):
        ids, work = self.world.cohort(t)
        which = self.choose(t, ids)
        rows, _, losses = self.fits(t, ids, work, which, **self.how())
        weights = self.world.weights(which, ids, len(self.models), self.average, self.divisor())
        old, self.models = self.models, self.world.together(t, self.models, weights, rows)
        self.labels[ids] = which
        return self.told(ids, which, rows, losses, old)

    def how(self):
        return {"mu": self.world.method.get("mu", 0.0)}

    def divisor(self):
        return "members"

    def told(self, ids, which, rows, losses, old, down=1, up=1):
        if not len(ids):
            return Told()
        moved = [self.models[k] - old[k] for k in which]
        after, start = (np.linalg.norm(v, axis=1).mean() for v in (rows - np.array(moved), rows))
        return Told(np.average(losses, weights=self.world.size[ids]), after, start, down * len(ids), up * len(ids))

    def state(self):
        """(models [K, d], who is scored by which)."""
        return np.array(self.models), self.labels


class Oracle(Rounds):
    chooses = False

    def __init__(self, world):
        super().__init__(world)
        self.models, self.labels = [world.start(0)] * world.groups, world.clients.group.copy()


class Ifca(Rounds):
    scores = "loss"

    def __init__(self, world):
        super().__init__(world)
        self.models = [world.start(k) for k in range(world.method["clusters"])]
        self.labels[:] = -1

    def how(self):
        if self.world.method["aggregate"] == "model":
            return {}
        return {"amount": (None, 1, self.world.train["batch"] if self.world.method["estimate"] == "batch" else "full")}

    def divisor(self):
        return "members" if self.world.method["aggregate"] == "model" else "participants"

    def seen(self, t, i):
        """The samples that a client chooses by."""
        (x, y), key = self.world.data[i], plain.local_key(plain.round_key(self.world.seed, t), self.world.uid[i])
        batch = self.world.train["batch"] if self.world.method["estimate"] == "batch" else "full"
        rows = plain.batches(key, len(y), batch, steps=1)[0]
        return x[rows], y[rows]

    def choose(self, t, ids):
        losses = [[self.world.net.loss(w, *self.seen(t, i)) for w in self.models] for i in ids]
        which = np.argmin(np.array(losses).reshape(len(ids), len(self.models)), axis=1)
        rule, key = self.world.method.get("reseed", "never"), plain.round_key(self.world.seed, t)
        return reseed(key, which, self.world.uid[ids], len(self.models), rule)

    def told(self, *args):
        return super().told(*args, down=len(self.models))


class CflMgd(Ifca):
    """The cluster's buffer is the mean of what its members' buffers have become."""

    def __init__(self, world):
        super().__init__(world)
        self.buffers = [np.zeros(world.d) for _ in self.models]

    def round(self, t):
        world, (ids, work) = self.world, self.world.cohort(t)
        which = self.choose(t, ids)
        made = []
        for i, k in zip(ids, which, strict=True):
            momentum = {"momentum": world.method["beta"], "velocity": self.buffers[k]}
            made.append(world.learn(t, i, self.models[k], work[i], **momentum, **self.how()))
        rows = np.array([delta for delta, _, _ in made]).reshape(len(ids), world.d)
        weights = world.weights(which, ids, len(self.models), "uniform", self.divisor())
        old, self.models = self.models, world.together(t, self.models, weights, rows)
        for k in set(which):
            self.buffers[k] = np.mean([u for (_, u, _), mine in zip(made, which, strict=True) if mine == k], axis=0)
        self.labels[ids] = which
        return self.told(ids, which, rows, [loss for _, _, loss in made], old)

    def told(self, *args):
        told = super().told(*args)
        both = 2 if self.world.method["aggregate"] == "model" else 1
        return told._replace(down=told.down + told.up, up=both * told.up)


class Fesem(Rounds):
    scores = "distance"

    def __init__(self, world):
        super().__init__(world)
        self.models = [world.start(k + 1) for k in range(world.method["clusters"])]
        self.labels[:] = -1
        self.own = np.tile(world.start(0), (len(world.uid), 1))
        self.first = world.method["fesem_init"] == "own"
        if self.first:
            key = keys.fold(keys.root(world.seed), "own")
            for i in np.flatnonzero(world.able):
                amount = (1, None, world.train["batch"])
                self.own[i] += world.sent(i, world.learn(0, i, self.own[i], key=key, amount=amount)[0], key)

    def choose(self, t, ids):
        return self.nearest(ids)

    def nearest(self, ids):
        return np.array([np.argmin([np.linalg.norm(self.own[i] - c) for c in self.models]) for i in ids], int)

    def told(self, ids, which, rows, losses, old):
        self.own[ids] = [old[k] + row for k, row in zip(which, rows, strict=True)] if len(ids) else self.own[ids]
        told, more = super().told(ids, which, rows, losses, old), int(self.world.able.sum()) if self.first else 0
        self.first = False
        return told._replace(down=told.down + more, up=told.up + more)


class Personal(Rounds):
    """A model for each client."""

    chooses = False

    def __init__(self, world):
        super().__init__(world)
        self.own, self.drawn = np.tile(world.start(0), (len(world.uid), 1)), np.zeros(len(world.uid), bool)


class Local(Personal):
    def round(self, t):
        ids, work = self.world.cohort(t)
        made = [self.world.learn(t, i, self.own[i], work[i]) for i in ids]
        for i, (delta, _, _) in zip(ids, made, strict=True):
            self.own[i] += delta
        if not made:
            return Told()
        lengths = [np.linalg.norm(delta) for delta, _, _ in made]
        return Told(np.average([loss for _, _, loss in made], weights=self.world.size[ids]), 0.0, np.mean(lengths))

    def state(self):
        return self.own, np.arange(len(self.own))


class Ditto(Personal):
    def round(self, t):
        ids, work = self.world.cohort(t)
        w, lam = self.models[0], self.world.method["lam"]
        rows, _, losses = self.fits(t, ids, work, np.zeros(len(ids), int))
        for i in ids:
            self.own[i] += self.world.learn(t, i, self.own[i], work[i], mu=lam, anchor=w)[0]
        self.drawn[ids] = True
        which = np.zeros(len(ids), int)
        self.models = self.world.together(t, self.models, self.world.weights(which, ids, 1, self.average), rows)
        return self.told(ids, which, rows, losses, [w])

    def state(self):
        return np.where(self.drawn[:, None], self.own, self.models[0]), np.arange(len(self.own))


METHODS = {"fedavg": Rounds, "fedprox": Rounds, "oracle": Oracle, "local": Local, "ditto": Ditto}
METHODS |= {"ifca": Ifca, "cfl_mgd": CflMgd, "fesem": Fesem}
