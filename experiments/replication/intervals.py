"""Enters: a number for each draw, which is a seed and the draw of the data. Leaves: the 95 %
interval of their mean, Student's t. Seeds that share a draw of the data are no independent draws of
it. Where only some of them share one, the deviation is of the draws' sums (cluster-robust), with as
many degrees of freedom as there are draws, less one. Where all seeds share one draw, the interval
is over the seeds and leaves the draw out. Or: two lists of numbers, and the interval of the ratio
of their variances."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

LEVEL = 0.95
"""The level of the intervals."""


def interval(values: Mapping[Hashable, float]) -> tuple[float, float]:
    """(low, high) of the mean; infinite for fewer than two values, or where one is infinite."""
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    known = np.array(list(values.values()), np.float64)
    if len(known) < 2 or not np.isfinite(known).all():
        return -math.inf, math.inf
    mean = float(known.mean())
    sums: dict[Hashable, float] = {}
    for draw, value in values.items():
        group = _data(draw)
        sums[group] = sums.get(group, 0.0) + float(value) - mean
    if len(sums) == 1:
        sums = {draw: value - mean for draw, value in values.items()}
    n, k = len(known), len(sums)
    half = (
        float(stdtrit(k - 1, (1 + LEVEL) / 2))
        * math.sqrt(k / (k - 1) * sum(total**2 for total in sums.values()))
        / n
    )
    return mean - half, mean + half


def ratio_of_variances(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """(low, high) of the first variance divided by the second, Fisher's F; infinite for fewer than
    two values, or where the second has no variance."""
    from scipy.special import fdtri  # scipy.stats takes half a second to import

    if min(len(one), len(other)) < 2 or not np.isfinite([*one, *other]).all() or not np.var(other):
        return -math.inf, math.inf
    ratio = float(np.var(one, ddof=1) / np.var(other, ddof=1))
    dfs, tail = (len(one) - 1, len(other) - 1), (1 + LEVEL) / 2
    return ratio / float(fdtri(*dfs, tail)), ratio * float(fdtri(*dfs[::-1], tail))


def _data(draw: Hashable) -> Hashable:
    """Return the draw of the data of a (seed, draw of the data)."""
    return draw[1] if isinstance(draw, tuple) else None
