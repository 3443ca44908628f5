"""Enters: configurations. Leaves: how well the clusters that they have found agree, without true
groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cfljax.report.configurations import Configuration
from cfljax.report.curves import drawn_units, read
from cfljax.report.run_pictures import agree, explain_trivial

# Of more runs of a configuration the first are compared
MAX_COMPARED_RUNS = 10

# Seed -> the clusters of the clients at the end, i32[C]
Finals = dict[int, np.ndarray]


class Agreement(NamedTuple):
    """The agreement of methods on the same data."""

    # The settings of the data; "" if they do not vary
    heading: str
    # The configurations, as positions among those of the figures
    members: list[int]
    # f64[M, M]: the mean adjusted Rand index over the seeds of two methods; on the diagonal over
    # the pairs of seeds of a method; NaN without any
    table: np.ndarray


def compare_clusterings(drawn: Sequence[Configuration], problems: list[str]) -> list[Agreement]:
    """Compare the clusters at the end of methods on the same data, by the adjusted Rand index.
    Methods with one cluster, or with one for each client, are left out. Add a line to `problems`
    for each damaged file."""
    blocks: dict[str, dict[int, Finals]] = {}
    for i, each in enumerate(drawn):
        if finals := _read_finals(each, problems):
            blocks.setdefault(each.block, {})[i] = finals
    found = []
    for members in blocks.values():
        first = drawn[next(iter(members))]
        # If each seed draws who holds which data, the clients of two seeds are not the same
        shared = (first.units[0].record["config"].get("data") or {}).get("seed") != "run"
        table = _compare(list(members.values()), shared)
        if np.isfinite(table).any():
            found.append(Agreement(first.heading, list(members), table))
    return found


def _read_finals(configuration: Configuration, problems: list[str]) -> Finals:
    """Read the clusters at the end of the runs that have some."""
    finals = {}
    for unit in drawn_units(configuration)[:MAX_COMPARED_RUNS]:
        arrays = read(unit, ("labels",), problems) or {}
        labels = np.atleast_2d(arrays.get("labels", np.zeros((0, 0)))).astype(np.int32)
        if labels.size and not explain_trivial(labels[-1:]):
            finals[unit.seed] = labels[-1]
    return finals


def _compare(members: Sequence[Finals], shared: bool) -> np.ndarray:
    """Return the means of all pairs of methods f64[M, M]. `shared`: whether two seeds have the same
    clients."""
    table = np.full((len(members), len(members)), np.nan)
    for i, finals in enumerate(members):
        if shared and len(finals) > 1:
            table[i, i] = np.mean([agree(*pair) for pair in combinations(finals.values(), 2)])
        for j, others in enumerate(members[:i]):
            if found := list(_compare_seeds(finals, others)):
                table[i, j] = table[j, i] = np.mean(found)
    return table


def _compare_seeds(one: Finals, other: Finals) -> Iterator[float]:
    """Yield the indices of the seeds that two methods share."""
    for seed in one.keys() & other.keys():
        if one[seed].shape == other[seed].shape:
            yield agree(one[seed], other[seed])
