"""A continuous target for partitions that deal labels: by its deciles."""

from __future__ import annotations

import numpy as np

from cfljax.errors import SpecError
from cfljax.types import Parts, Source

QUANTILES = 10
"""How many equal parts of the samples, from the least target to the highest, stand for classes."""


def to_quantiles(source: Source) -> Source:
    """Return the data set with the quantile of each target as its label, less of them if targets
    are equal; a data set with labels as it is."""
    y = np.concatenate([source.y_train, source.y_test])
    if y.dtype.kind != "f":
        return source
    edges = np.quantile(y, np.arange(1, QUANTILES) / QUANTILES)
    found, labels = np.unique(np.searchsorted(edges, y, side="right"), return_inverse=True)
    train, test = np.split(labels.astype(np.int32), [len(source.y_train)])
    return source._replace(y_train=train, y_test=test, classes=len(found))


def check_parts(parts: Parts, partition: str) -> Parts:
    """Return the parts; raise a SpecError if clients see the quantiles of a target as labels."""
    if parts.labels is not None or parts.by_label is not None:
        raise SpecError(
            f'data.partition = "{partition}": clients see labels differently, and a continuous '
            "target has none; take another partition or view"
        )
    if parts.source is not None:
        raise SpecError(
            f'data.partition = "{partition}": makes samples of its own for labels, and a '
            "continuous target has none; take another partition"
        )
    return parts
