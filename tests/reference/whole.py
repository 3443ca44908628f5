"""A whole run as a plain program: who takes part, who drops out or does a part of its work, what it learns and sends, what the
server makes of it. float64 and loops; only random draws come from the package's named keys. (`whole_rounds`: the methods;
`whole_scores`: how everybody is scored, and the run from start to end.)"""

import math

import jax
import numpy as np

from cfljax import keys
from tests.reference import plain

UNSAID = ("epochs", "steps", "eval_clients", "privacy", "compress", "attack", "robust")
"""Options that a record leaves out where there are none."""


class World:
    """A run's settings, as its record has them, and its clients. `init`: the package's draw of a model from a key."""

    def __init__(self, config, federation, init):
        self.train, self.method, self.seed = dict.fromkeys(UNSAID) | config["train"], config["method"], config["seeds"][0]
        self.clients, self.init, self.groups = plain.Clients(federation), init, federation.groups
        model, features = config["model"], int(np.prod(federation.pool.x.shape[1:]))
        self.net = plain.Net(features, federation.classes, model["hidden"][0] if model["name"] == "mlp" else None)
        self.uid, self.size, self.arrive = self.clients.uid, self.clients.size, np.asarray(federation.arrive)
        self.able = self.size > 0
        self.liars = self._liars()
        flips = (self.train["attack"] or {}).get("name") == "label_flip"
        last = federation.classes - 1
        self.data = [(x, last - y if flips and lies else y) for (x, y), lies in zip(self.clients.train, self.liars, strict=True)]
        self.d = len(self.start(0))

    def start(self, number):
        """Initial model of that number; 0 is w_0."""
        return np.array(self.init(keys.fold(keys.root(self.seed), "model", number)), np.float64)

    def luck(self, key, name):
        """f32[C] in [0, 1), by identity."""
        return (np.asarray(keys.scores(key, name, self.uid)) >> 8).astype(np.float32) / np.float32(1 << 24)

    def _liars(self):
        """bool[C]: the share of those that train, rounded half up, with the lowest luck."""
        attack, lies = self.train["attack"], np.zeros(len(self.uid), bool)
        if attack:
            able = np.flatnonzero(self.able)
            luck = self.luck(keys.root(attack["seed"]), "liar")[able]
            lies[able[np.argsort(luck, kind="stable")[: math.floor(attack["share"] * len(able) + 0.5)]]] = True
        return lies

    # --- a round -----------------------------------------------------------------------------------------------------

    def cohort(self, t):
        """(participants of round t, the share of its work that each client does)."""
        key, p, able = plain.round_key(self.seed, t), self.train["participation"], int(self.able.sum())
        places = min(p, able) if isinstance(p, int) else max(1, round(p * able))
        ids = np.flatnonzero(self.able & (self.arrive <= t))
        if places < able:
            score = (np.asarray(keys.scores(key, "cohort", self.uid)) >> 1).astype(np.int64)
            ids = ids[np.argsort(-score[ids], kind="stable")][:places]
        if self.train["dropout"] > 0:
            ids = ids[self.luck(key, "dropout")[ids] >= np.float32(self.train["dropout"])]
        slow = self.luck(key, "straggler") < np.float32(self.train["stragglers"])
        return ids, np.where(slow, self.train["straggler_work"], 1.0)

    def rate(self, t):
        return self.train["lr"] * self.train["lr_decay"] ** t

    def steps(self, i, work, epochs, steps, batch):
        """How many steps client i does of the whole."""
        n = len(self.data[i][1])
        whole = steps if steps is not None else epochs * (1 if batch == "full" else math.ceil(n / batch))
        return max(1, math.ceil(work * whole - 1e-3))

    def learn(self, t, i, w, work=1.0, key=None, mu=0.0, anchor=None, momentum=None, velocity=None, amount=None, data=None):
        """(change of the model, momentum buffer, mean loss of the samples on the way): local SGD of client i from w."""
        epochs, steps, batch = amount or (self.train["epochs"], self.train["steps"], self.train["batch"])
        x, y = self.data[i] if data is None else data
        own = plain.local_key(plain.round_key(self.seed, t) if key is None else key, self.uid[i])
        momentum = self.train["momentum"] if momentum is None else momentum
        v, u, anchor, total, seen = w.copy(), np.zeros_like(w), w if anchor is None else anchor, 0.0, 0
        u = u if velocity is None else velocity.copy()
        for rows in plain.batches(own, len(y), batch, steps=self.steps(i, work, epochs, steps, batch)):
            total, seen = total + self.net.losses(v, x[rows], y[rows]).sum(), seen + len(rows)
            g = self.net.gradient(v, x[rows], y[rows]) + mu * (v - anchor) + self.train["weight_decay"] * v
            u = momentum * u + g
            v = v - self.rate(t) * u
        return v - w, u, total / max(seen, 1)

    def sent(self, i, row, key):
        """What the server has of the update of client i: lies, then fewer bytes, then the clip. `key`: of the round."""
        attack, compress, privacy = (self.train[name] for name in ("attack", "compress", "privacy"))
        own = plain.local_key(key, self.uid[i])
        if attack and self.liars[i] and attack["name"] == "sign_flip":
            row = -attack["factor"] * row
        if attack and self.liars[i] and attack["name"] == "noise":
            drawn = np.asarray(jax.random.normal(keys.fold(own, "lie"), row.shape), np.float64)
            row = attack["factor"] * np.linalg.norm(row) / np.sqrt(len(row)) * drawn
        if compress:
            row = compressed(compress, keys.fold(own, "compress"), row)
        if privacy:
            length = np.linalg.norm(row)
            row = row if length <= privacy["clip"] else row * (privacy["clip"] / length)
        return row

    def together(self, t, models, weights, rows):
        """The models moved by the members' updates: weights [K, S], rows [S, d]."""
        robust, privacy = self.train["robust"], self.train["privacy"]
        moved = [statistic(robust, rows[w > 0]) * w.sum() if robust and (w > 0).any() else w @ rows for w in weights]
        if privacy and privacy["noise"] > 0:
            drawn = jax.random.normal(keys.fold(plain.round_key(self.seed, t), "noise"), (len(models), self.d))
            spread = privacy["noise"] * privacy["clip"] * np.max(weights, axis=1, initial=0)
            moved = [m + s * np.asarray(n, np.float64) for m, s, n in zip(moved, spread, drawn, strict=True)]
        there = [(w > 0).any() for w in weights]
        return [m + v if some else m for m, v, some in zip(models, moved, there, strict=True)]

    def weights(self, which, ids, clusters, average, divisor="members"):
        """[K, S]: 1 or n_i over that of the members, or of all participants."""
        each = self.size if average == "samples" else self.able.astype(float)
        found = np.array([np.where(which == k, each[ids], 0.0) for k in range(clusters)]).reshape(clusters, len(ids))
        total = found.sum(axis=1, keepdims=True) if divisor == "members" else each[ids].sum()
        return found / np.where(total > 0, total, 1.0)

    def vector_bytes(self):
        """Of an update on its way up."""
        compress = self.train["compress"]
        if not compress:
            return 4 * self.d
        kept = min(self.d, max(1, math.ceil(compress.get("keep", 0) * self.d - 1e-6)))
        return {"topk": 8 * kept, "int8": 4 + self.d, "sign": 4 + math.ceil(self.d / 8)}[compress["name"]]


def compressed(how, key, row):
    """The row after it was sent with fewer bytes."""
    if how["name"] == "topk":
        kept = np.argsort(-np.abs(row), kind="stable")[: max(1, math.ceil(how["keep"] * len(row) - 1e-6))]
        return np.where(np.isin(np.arange(len(row)), kept), row, 0.0)
    if how["name"] == "sign":
        return np.sign(row) * np.abs(row).mean()
    unit = np.abs(row).max() / 127
    if unit == 0:
        return np.zeros_like(row)
    if how.get("rounding") == "nearest":
        return np.round(row / unit) * unit
    low = np.floor(row / unit)
    return (low + (np.asarray(jax.random.uniform(key, row.shape)) < row / unit - low)) * unit


def statistic(robust, rows):
    """Of the members' updates, in place of their mean."""
    n = len(rows)
    if robust["name"] == "median":
        return np.median(rows, axis=0)
    if robust["name"] == "trimmed_mean":
        cut = min(math.floor(robust["trim"] * n + 1e-4), (n - 1) // 2)
        return np.sort(rows, axis=0)[cut : n - cut].mean(axis=0)
    near = max(n - math.floor(robust["liars"] * n + 1e-4) - 2, 1)
    apart = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    scores = [np.sort(np.delete(apart[i], i))[:near].sum() for i in range(n)]
    best = np.flatnonzero(np.isclose(scores, min(scores), rtol=1e-9, atol=0))
    return rows[min(best, key=lambda i: np.linalg.norm(rows[i]))]
