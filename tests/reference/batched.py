"""A network with batch normalisation, by hand: a dense layer, BatchNorm, ReLU and a head."""

import numpy as np

from tests.reference import plain

EPSILON = 1e-5


class Net(plain.Net):
    """As `plain.Net`. The gradient by running statistics is what a step of `lr` moves them by, to
    momentum · old + (1 − momentum) · the batch's. Vectors are in the order of the package: bias,
    mean, variance and scale of BatchNorm before the dense layers."""

    def __init__(self, features, classes, hidden, lr, momentum=0.8):
        self.sizes, self.lr, self.momentum = [features, hidden, classes], lr, momentum

    def split(self, w):
        (c, mean, var, g), dense = (
            np.reshape(w[: 4 * self.sizes[1]], (4, -1)),
            self.layers(w[4 * self.sizes[1] :]),
        )
        return c, mean, var, g, *dense

    def logits(self, w, x):
        c, mean, var, g, (b, k), (b2, k2) = self.split(w)
        return np.maximum((x @ k + b - mean) / np.sqrt(var + EPSILON) * g + c, 0) @ k2 + b2

    def gradient(self, w, x, y, weights=None):
        assert weights is None
        c, mean, var, g, (b, k), (b2, k2) = self.split(w)
        z = x @ k + b
        own_mean, own_var = z.mean(0), z.var(0)
        n = (z - own_mean) / np.sqrt(own_var + EPSILON)
        h = np.maximum(n * g + c, 0)
        p = np.exp(h @ k2 + b2)
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        back = (p @ k2.T) * (h > 0)
        by_n = back * g
        by_z = (by_n - by_n.mean(0) - n * (by_n * n).mean(0)) / np.sqrt(own_var + EPSILON)
        left = (1 - self.momentum) / self.lr
        norm = [back.sum(0), left * (mean - own_mean), left * (var - own_var), (back * n).sum(0)]
        return np.concatenate(
            [*norm, by_z.sum(0), (x.T @ by_z).ravel(), p.sum(0), (h.T @ p).ravel()]
        )
