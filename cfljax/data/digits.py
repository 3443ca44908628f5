"""The 1,797 handwritten digits (8 × 8) that come with scikit-learn: no download."""

from __future__ import annotations

import numpy as np

from cfljax.data import arrays
from cfljax.data.sources import DrawSource
from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.types import Source

_CUT = 0
"""Seed of the division into training and test samples."""


def make(options: NoOptions, rng: np.random.Generator) -> Source:  # noqa: ARG001 - the division is the same for every seed
    """scikit-learn's 1,797 handwritten digits, 8 × 8 pixels, ten classes; no download."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # stored 0 … 16; as bytes, white is 255 as in other image sets
    y = bunch.target.astype(np.int32)
    test = stratified(y, 0.2, np.random.default_rng(_CUT))
    return arrays.source("digits", "digits", (x[~test], y[~test]), (x[test], y[test]), classes=10)


def stratified(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """bool[n]: a random `share` of each class, rounded."""
    test = np.zeros(len(y), bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        test[rng.permutation(rows)[: round(share * len(rows))]] = True
    return test


ENTRY = Entry[DrawSource](NoOptions, make)
