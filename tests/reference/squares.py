"""A linear model of a number, or one with a hidden ReLU layer, whose loss is the squared error."""

import numpy as np

from tests.reference import plain


class Squares(plain.Net):
    """`plain.Net` with one output, and loss and gradient by hand."""

    def __init__(self, features, hidden=None):
        super().__init__(features, 1, hidden)

    def losses(self, w, x, y):
        return (self.logits(w, x)[:, 0] - y) ** 2

    def gradient(self, w, x, y, weights=None, more=0.0):
        assert weights is None and more == 0.0
        slope = 2 * (self.logits(w, x) - y[:, None]) / len(y)
        if len(self.sizes) == 2:
            return np.concatenate([slope.sum(axis=0), (x.T @ slope).ravel()])
        (b, k), (_, k2) = self.layers(w)
        h = x @ k + b
        back = (slope @ k2.T) * (h > 0)
        parts = (back.sum(axis=0), x.T @ back, slope.sum(axis=0), np.maximum(h, 0).T @ slope)
        return np.concatenate([part.ravel() for part in parts])
