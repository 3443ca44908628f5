"""Enters: configurations. Leaves: the rows of the comparison table: means over seeds, the best of each column, and its tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.report.configurations import Configuration, Unit
from cfljax.results.frames import number

LEVEL = 0.05
"""The significance level of the tests."""
FEWEST = 3
"""The fewest seeds in common with the best row for a test."""


class Column(NamedTuple):
    """A quantity of the comparison table."""

    key: str
    heading: str
    value: Callable[[Unit], float]
    """The quantity of a run; NaN where the run has none."""
    kind: str = "percent"
    """How it is printed: percent, score, count, bytes or seconds."""
    better: int = 1
    """1: the higher the better, −1: the lower, 0: neither is marked."""


class Cell(NamedTuple):
    """One quantity of one configuration."""

    mean: float
    std: float | None
    """Standard deviation of a sample; None for fewer than two runs."""
    n: int
    total: int
    """The number of runs that are done; `n` of them have the quantity."""
    best: bool = False
    p: float | None = None
    """The corrected p value of the test against the best; None: not tested."""

    @property
    def tied(self) -> bool:
        """Tested, and not significantly different from the best."""
        return self.p is not None and self.p >= LEVEL


class Row(NamedTuple):
    """The quantities of one configuration."""

    configuration: Configuration
    cells: dict[str, Cell]
    """By the key of the column."""


def _summary(name: str) -> Callable[[Unit], float]:
    return lambda unit: number(unit.record["summary"].get(name))


def _bytes(unit: Unit) -> float:
    return _summary("bytes_up")(unit) + _summary("bytes_down")(unit)


def seconds(unit: Unit) -> float:
    """The seconds that a run took: compiling, training and evaluating; NaN if they are not recorded."""
    return math.fsum(number(v) for v in unit.record["timings"].values()) if unit.record["timings"] else math.nan


COLUMNS = (
    Column("accuracy_max", "max", _summary("accuracy_max")),
    Column("accuracy_last", "last", _summary("accuracy_last")),
    Column("accuracy_last10", "last 10", _summary("accuracy_last10")),
    Column("accuracy_worst10", "worst tenth", _summary("accuracy_worst10")),
    Column("accuracy_train_clients_last", "last, training clients", _summary("accuracy_train_clients_last")),
    Column("accuracy_test_clients_last", "last, test clients", _summary("accuracy_test_clients_last")),
    Column("ari_last", "ARI", _summary("ari_last"), "score"),
    Column("nmi_last", "NMI", _summary("nmi_last"), "score"),
    Column("clusters_last", "clusters", _summary("clusters_last"), "count", 0),
    Column("round_to_target", "rounds to target", _summary("round_to_target"), "count", -1),
    Column("bytes_to_target", "bytes to target", _summary("bytes_to_target"), "bytes", -1),
    Column("bytes", "bytes", _bytes, "bytes", 0),
    Column("seconds", "seconds", seconds, "seconds", 0),
)
TARGETS = ("round_to_target", "bytes_to_target")
APART = ("accuracy_train_clients_last", "accuracy_test_clients_last")
"""Columns for data sets in which some clients never train."""


def rows(configurations: Sequence[Configuration], columns: Iterable[Column] = COLUMNS) -> list[Row]:
    """A row per configuration, with the best of each block marked and the others tested against it. Columns about a
    target are left out if no run has reached one, and those of APART if all clients train."""
    table = [Row(configuration, {}) for configuration in configurations]
    blocks: dict[str, list[Row]] = {}
    for row in table:
        blocks.setdefault(row.configuration.block, []).append(row)
    for column in columns:
        done = (unit for row in table for unit in row.configuration.by_status("done"))
        if column.key in (*TARGETS, *APART) and not any(math.isfinite(column.value(unit)) for unit in done):
            continue
        for block in blocks.values():
            _fill(block, column)
    return table


def _fill(block: list[Row], column: Column) -> None:
    """Set the cells of one column in the rows of one block."""
    by_seed = []
    for row in block:
        done = row.configuration.by_status("done")
        values = {key: v for key, unit in _keyed(done) if math.isfinite(v := column.value(unit))}
        by_seed.append(values)
        row.cells[column.key] = Cell(*mean_and_deviation(values.values()), len(values), len(done))
    cells = [row.cells[column.key] for row in block]
    whole = [i for i, cell in enumerate(cells) if cell.n and cell.n == cell.total]
    if column.better == 0 or len(whole) < 2:
        return
    best = max(whole, key=lambda i: column.better * cells[i].mean)
    others = [i for i in whole if cells[i].mean != cells[best].mean]
    shared = {i: [seed for seed in by_seed[i] if seed in by_seed[best]] for i in others}
    tested = {
        i: paired_t([by_seed[i][s] for s in seeds], [by_seed[best][s] for s in seeds])
        for i, seeds in shared.items()
        if len(seeds) >= FEWEST
    }
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    for i in whole:
        block[i].cells[column.key] = cells[i]._replace(best=i not in others, p=corrected.get(i))


def _keyed(units: Iterable[Unit]) -> Iterator[tuple[tuple[int, int], Unit]]:
    """((seed, number of earlier runs with this seed), run): the key distinguishes runs that share a seed."""
    often: Counter[int] = Counter()
    for unit in units:
        yield (unit.seed, often[unit.seed]), unit
        often[unit.seed] += 1


def paired_t(one: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided p of a paired t-test. If all differences are equal, p is 1 where they are zero, else 0."""
    from scipy.special import stdtr  # scipy.stats takes half a second to import

    difference = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    mean, spread = float(difference.mean()), float(difference.std(ddof=1))
    if spread <= 1e-12 * max(abs(mean), 1e-12):
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(len(difference) - 1, -abs(mean) / (spread / math.sqrt(len(difference)))))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p values."""
    corrected, highest = [1.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        corrected[i] = highest
    return corrected


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float | None]:
    """(mean, standard deviation of a sample): NaN for no values, None for fewer than two."""
    values = list(values)
    if not values:
        return math.nan, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
