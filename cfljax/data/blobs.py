"""Gaussian blobs: a small data set for fast tests."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.data import arrays
from cfljax.data.digits import stratified
from cfljax.data.sources import DrawSource
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Source


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the blobs."""

    samples: int = option(1000, "training and test samples together", low=2, high=10_000_000)
    classes: int = option(4, "number of blobs", low=1, high=10_000)
    features: int = option(8, "dimensions", low=1, high=100_000)
    spread: float = option(0.3, "standard deviation of a blob; the centres have 1", low=0.0)


def make(options: Options, rng: np.random.Generator) -> Source:
    """Gaussian blobs around normally distributed centres, one per class; a fifth is the test set."""
    y = np.arange(options.samples, dtype=np.int32) % options.classes
    centres = rng.standard_normal((options.classes, options.features), dtype=np.float32)
    noise = rng.standard_normal((options.samples, options.features), dtype=np.float32)
    x = centres[y] + np.float32(options.spread) * noise
    test = stratified(y, 0.2, rng)
    return arrays.source("blobs", "blobs", (x[~test], y[~test]), (x[test], y[test]), classes=options.classes)


ENTRY = Entry[DrawSource](Options, make)
