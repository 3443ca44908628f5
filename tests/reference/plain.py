"""A plain numpy simulator to compare with: float64, one client at a time, no JAX in the arithmetic.
Random draws (which clients, which order of samples) come from the same named keys, so that both
programs see the same numbers.

The model is multinomial logistic regression, or with `hidden` a network with one hidden ReLU layer,
as flat vectors in the order of the package: layer by layer, bias before kernel.
"""

import jax
import numpy as np

from cfljax import keys

_permutation = jax.jit(keys.permutation, static_argnums=2)


class Net:
    """Loss and gradient of the mean cross entropy, by hand."""

    def __init__(self, features, classes, hidden=None):
        self.sizes = [features, classes] if hidden is None else [features, hidden, classes]

    def layers(self, w):
        out, at = [], 0
        for a, b in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            out.append((w[at : at + b], w[at + b : at + b + a * b].reshape(a, b)))
            at += b + a * b
        return out

    def logits(self, w, x):
        (b, k), *rest = self.layers(w)
        z = x @ k + b
        for b2, k2 in rest:
            z = np.maximum(z, 0) @ k2 + b2
        return z

    def losses(self, w, x, y):
        z = self.logits(w, x)
        top = z.max(axis=1, keepdims=True)
        return np.log(np.exp(z - top).sum(axis=1)) + top[:, 0] - z[np.arange(len(y)), y]

    def loss(self, w, x, y):
        return self.losses(w, x, y).mean()

    def features(self, w, x):
        """f64[n, hidden]: what the last layer gets."""
        (b, k), _ = self.layers(w)
        return np.maximum(x @ k + b, 0)

    def gradient(self, w, x, y, weights=None, more=0.0):
        """`more` f64[n, hidden]: the gradients of a further loss of each sample by its features."""
        layers = self.layers(w)
        z = self.logits(w, x)
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        if weights is not None:
            p *= weights[:, None]
        if len(layers) == 1:
            return np.concatenate([p.sum(axis=0), (x.T @ p).ravel()])
        (b, k), (_, k2) = layers
        h = x @ k + b
        back = (p @ k2.T + more / len(y)) * (h > 0)
        return np.concatenate(
            [
                back.sum(axis=0),
                (x.T @ back).ravel(),
                p.sum(axis=0),
                (np.maximum(h, 0).T @ p).ravel(),
            ]
        )


class Clients:
    """Each client's own arrays, as the model sees them."""

    def __init__(self, federation):
        pool = federation.pool
        x = (np.asarray(pool.x, np.float64) - np.asarray(pool.mean)) * np.asarray(
            pool.scale, np.float64
        )
        x, y = x.reshape(len(x), -1), np.asarray(pool.y)
        self.uid = np.asarray(federation.uid)
        self.group = np.asarray(federation.group)
        self.train = [
            self._own(federation, federation.train, c, x, y) for c in range(len(self.uid))
        ]
        self.test = [self._own(federation, federation.test, c, x, y) for c in range(len(self.uid))]
        self.size = np.array([len(y) for _, y in self.train], np.float64)

    def _own(self, federation, split, c, x, y):
        start, count = int(np.asarray(split.start)[c]), int(np.asarray(split.count)[c])
        rows = np.asarray(split.rows)[start : start + count]
        x, y, view = x[rows], y[rows], federation.view
        if view is None:
            return x, y
        v = int(np.asarray(view.of)[c])
        if view.pixels is not None:
            source = np.asarray(view.pixels)[v]
            assert (source >= 0).all(), "the reference turns by quarter turns only"
            x = x[:, source]
        if view.gain is not None:
            x = x * float(np.asarray(view.gain)[v])
        if view.offset is not None:
            x = x + float(np.asarray(view.offset)[v])
        return x, (y if view.labels is None else np.asarray(view.labels)[v][y])


def round_key(seed, t):
    return keys.fold(keys.root(seed), "round", t)


def cohort(seed, t, uid, participants):
    """The participants of round t, in the order of the package."""
    if participants >= len(uid):
        return np.arange(len(uid))
    score = np.asarray(keys.scores(round_key(seed, t), "cohort", uid)) >> 1
    return np.argsort(-score.astype(np.int64), kind="stable")[:participants]


def local_key(key, uid):
    return jax.random.fold_in(keys.fold(key, "client"), int(uid))


def order(key, epoch, n):
    """The shuffle of one epoch of one client."""
    return shuffled(keys.fold(key, "epoch", epoch), n)


def shuffled(key, n):
    """i32[n]: 0 … n − 1 in random order. The length is padded, so that one compiled program
    shuffles lists of many lengths."""
    return np.asarray(_permutation(key, n, -(-n // 128) * 128))[:n]


def batches(key, n, batch, steps=None, epochs=None):
    """The stream of batches (positions in the client's list) of one local training."""
    out, epoch = [], 0
    batch = n if batch == "full" else batch
    while (len(out) < steps) if steps is not None else (epoch < epochs):
        shuffled = np.arange(n) if batch == n else order(key, epoch, n)
        out += [shuffled[i : i + batch] for i in range(0, n, batch)]
        epoch += 1
    return out if steps is None else out[:steps]


def fit(
    net, w, data, key, lr, batch=10, epochs=1, steps=None, mu=0.0, anchor=None, momentum=0.0, weight_decay=0.0, velocity=None,
    weights=None, losses=None,
):  # fmt: skip
    """(w after local SGD, momentum buffer): one client, one step at a time; `weights` of its
    samples' losses; `losses`: a list that gets the loss of each sample before its step."""
    x, y = data
    start = w if anchor is None else anchor
    u = np.zeros_like(w) if velocity is None else velocity.copy()
    for rows in batches(key, len(y), batch, steps, None if steps is not None else epochs):
        g = (
            net.gradient(w, x[rows], y[rows], None if weights is None else weights[rows])
            + mu * (w - start)
            + weight_decay * w
        )
        if losses is not None:
            losses += net.losses(w, x[rows], y[rows]).tolist()
        u = momentum * u + g
        w = w - lr * u
    return w, u


def average(models, weights):
    weights = np.asarray(weights, np.float64)
    return sum(m * v for m, v in zip(models, weights / weights.sum(), strict=True))


def accuracy(net, clients, models, labels):
    """Total correct over total test samples, each client with `models[labels[c]]`."""
    right = total = 0
    for c, (x, y) in enumerate(clients.test):
        if len(y):
            right += (net.logits(models[labels[c]], x).argmax(axis=1) == y).sum()
            total += len(y)
    return right / total
