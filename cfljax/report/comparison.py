"""Enters: configurations. Leaves: the rows of the comparison table: means over seeds, the best of
each column, and its tests."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cfljax.registry.options import Table
from cfljax.report.configurations import Configuration, Unit
from cfljax.results.statistics import (
    FEWEST_TESTED,
    LEVEL,
    Difference,
    difference,
    holm,
    holm_levels,
    interval,
    mean_and_deviation,
    paired_t,
)
from cfljax.store.quantities import SummaryQuantity, list_quantities, number, score_of


@dataclasses.dataclass(frozen=True)
class Column(SummaryQuantity):
    """A quantity of the comparison table."""

    interval: bool = False
    """Whether the 95 % interval stands beside the mean."""
    computed: Callable[[Unit], float] | None = None
    """The quantity of a run, if its record does not tell."""

    def of(self, unit: Unit) -> float:
        """Return the quantity of a run; NaN where the run has none."""
        return self.value(unit.record) if self.computed is None else self.computed(unit)


class Cell(NamedTuple):
    """One quantity of one configuration."""

    mean: float
    # Standard deviation of a sample; None for fewer than two runs
    std: float | None
    n: int
    # The number of runs that are done; `n` of them have the quantity
    total: int
    best: bool = False
    # The corrected p value of the test against the best; None: not tested
    p: float | None = None
    # The 95 % interval of the mean; None for fewer than FEWEST runs
    interval: tuple[float, float] | None = None
    # How far it is from the best, over the seeds that both have, with the interval that belongs to
    # the corrected p; None: it was not tested
    behind: Difference | None = None
    # The p value before the correction
    p_raw: float | None = None

    @property
    def tied(self) -> bool:
        """Tested, and not significantly different from the best."""
        return self.p is not None and self.p >= LEVEL


# (seed, number of earlier runs with this seed) of a run -> a quantity of it
Seeds = dict[tuple[int, int], float]


class Row(NamedTuple):
    """The quantities of one configuration."""

    configuration: Configuration
    # By the key of the column
    cells: dict[str, Cell]


def seconds_in_all(unit: Unit) -> float:
    """Return the seconds of a run with compiling and setting up; NaN if they are not recorded."""
    spent = unit.record["timings"]
    return math.fsum(map(number, spent.values())) if spent else math.nan


MAXIMUM = "_max"
"""How the key of the column ends that tables have only where it is asked for: a maximum over
evaluations is chosen on test data."""


def list_scores(configurations: Iterable[Configuration]) -> list[str]:
    """List what the scores of the finished runs are called; accuracy, if there are none."""
    done = (unit.record for each in configurations for unit in each.by_status("done"))
    return list(dict.fromkeys(map(score_of, done))) or ["accuracy"]


def list_columns(
    found: Iterable[str] = (), asked: bool = False, scores: Iterable[str] = ("accuracy",)
) -> list[Column]:
    """List the columns that tables may have: of the evaluations that judge a run, then the others.

    Args:
        found: names of quantities; of new clients, those among them have columns.
        asked: with the columns that are computed only for tables that name them.
        scores: what scores of the runs are called."""
    return [
        Column(**vars(each))
        for each in sorted(list_quantities(found, scores), key=lambda each: not each.window)
        if each.heading and (asked or not each.ask)
    ]


def window_of(configurations: Iterable[Configuration]) -> str:
    """Return the window of a table: of the best validation if any run has it, else the last ten if
    all have, or one."""
    done = [unit.record["summary"] for each in configurations for unit in each.by_status("done")]

    def has(summary: Table, ending: str) -> bool:
        return any(name.endswith(ending) for name in summary)

    if any(has(summary, "_at_best_val") for summary in done):
        return "at_best_val"
    return "last10" if done and all(has(each, "_worst10_last10") for each in done) else "last"


def rows(
    configurations: Sequence[Configuration],
    chosen: Callable[[Column], bool] = lambda _: True,
    computed: Iterable[Column] = (),
) -> list[Row]:
    """Make a row per configuration, mark the best of each block, and test the others against it
    unless they lost runs. The columns are of one window, without columns that no run has.

    Args:
        configurations: the rows.
        chosen: the columns that the table may have.
        computed: the columns that were asked for, with their values."""
    window = window_of(configurations)
    summaries = (
        unit.record["summary"] for each in configurations for unit in each.by_status("done")
    )
    found = {name for summary in summaries for name in summary}
    columns = [
        each
        for each in list_columns(found, scores=list_scores(configurations))
        if each.window in ("", window) and chosen(each)
    ]
    table = [Row(configuration, {}) for configuration in configurations]
    blocks: dict[str, list[Row]] = {}
    for row in table:
        blocks.setdefault(row.configuration.block, []).append(row)
    for column in (*columns, *computed):
        done = (unit for row in table for unit in row.configuration.by_status("done"))
        always = column.sentence or column.ask
        if not always and not any(math.isfinite(column.of(unit)) for unit in done):
            continue
        for block in blocks.values():
            _fill_column(block, column)
    return table


def headline_of(configurations: Iterable[Configuration]) -> Column:
    """Return the column that a comparison of these rests on."""
    configurations = list(configurations)
    window = window_of(configurations)
    columns = list_columns(scores=list_scores(configurations))
    return next(each for each in columns if each.sentence and each.window == window)


def headline(table: Sequence[Row]) -> Column | None:
    """Return the column that a comparison rests on; None for a table without it."""
    columns = list_columns(scores=list_scores(row.configuration for row in table))
    found = (c for c in columns if c.sentence and table and c.key in table[0].cells)
    return next((dataclasses.replace(column, interval=True) for column in found), None)


def _fill_column(block: list[Row], column: Column) -> None:
    """Compute the cells of a column for the rows of a block, mark the best, and test the others
    against it."""
    by_seed = []
    for row in block:
        values = map_by_seed(row.configuration, column)
        by_seed.append(values)
        numbers = list(values.values())
        row.cells[column.key] = Cell(
            *mean_and_deviation(numbers),
            len(values),
            len(row.configuration.by_status("done")),
            interval=_make_interval(numbers, column),
        )
    cells = [row.cells[column.key] for row in block]
    whole = [
        i
        for i, cell in enumerate(cells)
        if cell.n and cell.n == cell.total and not block[i].configuration.lost
    ]
    if column.better == 0 or len(whole) < 2:
        return
    # Only rows that lost no run are compared: the mean of the runs that are left may flatter a row
    best = max(whole, key=lambda i: column.better * cells[i].mean)
    others = [i for i in whole if cells[i].mean != cells[best].mean]
    tests = test_against(by_seed[best], {i: by_seed[i] for i in others})
    for i in whole:
        block[i].cells[column.key] = cells[i]._replace(
            best=i not in others, **tests[i]._asdict() if i in tests else {}
        )


class PairedTest(NamedTuple):
    """A method against the best one."""

    behind: Difference
    # Of the paired t-test, before and after Holm's correction
    p_raw: float
    p: float


def test_against(best: Seeds, others: Mapping[int, Seeds]) -> dict[int, PairedTest]:
    """Test methods against the best one over the seeds that they share with it, by paired t-tests
    with Holm's correction. Methods that share fewer than FEWEST_TESTED are left out."""
    pairs = {
        i: ([values[s] for s in seeds], [best[s] for s in seeds])
        for i, values in others.items()
        if len(seeds := [seed for seed in values if seed in best]) >= FEWEST_TESTED
    }
    raw = [paired_t(*pair) for pair in pairs.values()]
    return {
        i: PairedTest(difference(*pair, level), p_raw, p)
        for (i, pair), p_raw, p, level in zip(
            pairs.items(), raw, holm(raw), holm_levels(raw), strict=True
        )
    }


def map_by_seed(configuration: Configuration, column: Column) -> Seeds:
    """Map each run that has ended well and has the quantity to it."""
    done = configuration.by_status("done")
    return {key: v for key, unit in _key_units(done) if math.isfinite(v := column.of(unit))}


def _make_interval(numbers: Sequence[float], column: Column) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean, without what no accuracy can be."""
    found = interval(numbers)
    # Other scores may be negative
    if found is None or column.kind != "percent" or "accuracy" not in column.key:
        return found
    return max(found[0], 0.0), min(found[1], 1.0)


def _key_units(units: Iterable[Unit]) -> Iterator[tuple[tuple[int, int], Unit]]:
    """Yield ((seed, number of earlier runs with this seed), run): the key distinguishes runs that
    share a seed."""
    often: Counter[int] = Counter()
    for unit in units:
        yield (unit.seed, often[unit.seed]), unit
        often[unit.seed] += 1
