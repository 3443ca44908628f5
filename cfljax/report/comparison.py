"""Enters: configurations. Leaves: the rows of the comparison table: means over seeds, the best of
each column, and its tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cfljax.federation import VIEWS
from cfljax.report.configurations import Configuration, Unit
from cfljax.results.frames import NEW_CLIENTS, new_steps, number
from cfljax.results.statistics import (
    FEWEST,
    LEVEL,
    Difference,
    difference,
    holm,
    interval,
    mean_and_deviation,
    paired_t,
)


class Column(NamedTuple):
    """A quantity of the comparison table."""

    key: str
    heading: str
    # The quantity of a run; NaN where the run has none
    value: Callable[[Unit], float]
    # How it is printed: percent, score, count, bytes or seconds
    kind: str = "percent"
    # 1: the higher the better, −1: the lower, 0: neither is marked
    better: int = 1
    # Whether the 95 % interval stands beside the mean
    interval: bool = False
    # The one of WINDOWS whose evaluations it is about; "": it is about no single ones, and is in
    # all tables
    window: str = ""


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
    # How far it is from the best, over the seeds that both have; None: it was not tested
    behind: Difference | None = None

    @property
    def tied(self) -> bool:
        """Tested, and not significantly different from the best."""
        return self.p is not None and self.p >= LEVEL


class Row(NamedTuple):
    """The quantities of one configuration."""

    configuration: Configuration
    # By the key of the column
    cells: dict[str, Cell]


def _summary(name: str) -> Callable[[Unit], float]:
    """Return the function that reads a number of a run's summary."""
    return lambda unit: number(unit.record["summary"].get(name))


def sum_bytes(unit: Unit) -> float:
    """Return all bytes that clients sent and received."""
    return _summary("bytes_up")(unit) + _summary("bytes_down")(unit)


def seconds(unit: Unit) -> float:
    """Return the seconds in which a run was trained and evaluated; NaN if they are not recorded.
    Compiling is not a cost of a method: the first run of a program pays for all."""
    spent = unit.record["timings"]
    return (
        math.fsum(number(spent.get(name, 0.0)) for name in ("train", "eval")) if spent else math.nan
    )


def seconds_in_all(unit: Unit) -> float:
    """Return the seconds of a run with compiling and setting up; NaN if they are not recorded."""
    spent = unit.record["timings"]
    return math.fsum(map(number, spent.values())) if spent else math.nan


WINDOWS = {
    "at_best_val": ("at best validation", "{}_at_best_val"),
    "last10": ("last 10", "{}_last10"),
    "last": ("last", "{}_last"),
}
"""Which evaluations a table is about, the first of these that its runs have: (the heading, what
quantities of them are called)."""


def _list_columns(window: str) -> list[Column]:
    """List the columns of quantities that are read at the same evaluations as the accuracy."""
    heading, pattern = WINDOWS[window]
    # A summary's quantity at the end has no suffix
    worst = "accuracy_worst10" if window == "last" else pattern.format("accuracy_worst10")
    kinds = (
        (pattern.format("accuracy"), heading, "percent", 1),
        (worst, "worst tenth", "percent", 1),
        (pattern.format("ari"), "ARI", "score", 1),
        (pattern.format("nmi"), "NMI", "score", 1),
        (pattern.format("clusters"), "clusters", "count", 0),
    )
    return [
        Column(key, title, _summary(key), kind, better, window=window)
        for key, title, kind, better in kinds
    ]


COLUMNS = (
    *(column for window in WINDOWS for column in _list_columns(window)),
    *(Column(f"ari_{name}", f"ARI of {name}", _summary(f"ari_{name}"), "score") for name in VIEWS),
    Column("accuracy_max", "max", _summary("accuracy_max")),
    Column(
        "accuracy_train_clients_last",
        "last, training clients",
        _summary("accuracy_train_clients_last"),
    ),
    Column(
        "accuracy_test_clients_last", "last, test clients", _summary("accuracy_test_clients_last")
    ),
    Column("accuracy_finetuned", "last, fine-tuned", _summary("accuracy_finetuned")),
    Column("round_to_target", "rounds to target", _summary("round_to_target"), "count", -1),
    Column("bytes_to_target", "bytes to target", _summary("bytes_to_target"), "bytes", -1),
    Column("accuracy_in_drift", "in drift", _summary("accuracy_in_drift")),
    Column("ari_in_drift", "ARI in drift", _summary("ari_in_drift"), "score"),
    Column("recovery_rounds", "rounds to recover", _summary("recovery_rounds"), "count", -1),
    Column("clock_s", "simulated seconds", _summary("clock_s"), "seconds", 0),
    Column(
        "clock_to_target", "simulated seconds to target", _summary("clock_to_target"), "seconds", -1
    ),
    Column("cost", "cost", _summary("cost"), "seconds", 0),
    Column("bytes", "bytes", sum_bytes, "bytes", 0),
    Column("seconds", "seconds", seconds, "seconds", 0),
)
COLUMNS_ON_REQUEST = (
    Column("generalisation", "generalisation", _summary("generalisation")),
    Column("was", "WAS", _summary("was"), "score"),
    Column("bytes_over_fedavg", "bytes over FedAvg", _summary("bytes_over_fedavg"), "score", 0),
    Column(
        "seconds_over_fedavg", "seconds over FedAvg", _summary("seconds_over_fedavg"), "score", 0
    ),
)
"""Columns that are computed only for tables that name them (`asked.py`); no record has them."""
HEADLINES = tuple(called.format("accuracy") for _, called in WINDOWS.values())
"""What a comparison rests on: the first of these that the table has."""
MAXIMUM = "accuracy_max"
"""The column that tables have only where it is asked for: a maximum over evaluations is chosen on
test data."""
TARGET_COLUMNS = ("round_to_target", "bytes_to_target", "clock_to_target")
# Columns for data sets in which some clients never train
TRAIN_AND_TEST_CLIENTS = ("accuracy_train_clients_last", "accuracy_test_clients_last")
# Columns for runs whose data change
DRIFT_COLUMNS = ("accuracy_in_drift", "ari_in_drift", "recovery_rounds")
NOT_BY_ALL = (*TARGET_COLUMNS, "recovery_rounds")
"""Columns that tell what a run may never reach: their cells say how many of the runs have."""


def window_of(configurations: Iterable[Configuration]) -> str:
    """Return the window of a table: of the best validation if any run has it, else the last ten if
    all have, or one."""
    done = [unit.record["summary"] for each in configurations for unit in each.by_status("done")]
    if any("accuracy_at_best_val" in summary for summary in done):
        return "at_best_val"
    return (
        "last10"
        if done and all("accuracy_worst10_last10" in summary for summary in done)
        else "last"
    )


def add_new_client_columns(columns: Iterable[Column], names: Iterable[str]) -> list[Column]:
    """Return the columns, then the named columns of new clients: accuracy after each number of
    steps, and ARI."""
    found = set(names)
    new = []
    for name in sorted((name for name in found if name.startswith(NEW_CLIENTS)), key=new_steps):
        steps = new_steps(name)
        plural = "" if steps == 1 else "s"
        what = "unlabelled" if steps < 0 else f"{steps} step{plural}"
        new.append(Column(name, f"new clients, {what}", _summary(name)))
    return [
        *columns,
        *new,
        *(
            [Column("ari_new", "new clients, ARI", _summary("ari_new"), "score")]
            if "ari_new" in found
            else []
        ),
    ]


def rows(configurations: Sequence[Configuration], columns: Iterable[Column] = COLUMNS) -> list[Row]:
    """Make a row per configuration, mark the best of each block, and test the others against it
    unless they lost runs. The columns are of one window, without columns that no run has; columns
    of new clients are added if there are any."""
    window = window_of(configurations)
    columns = [column for column in columns if column.window in ("", window)]
    summaries = (
        unit.record["summary"] for each in configurations for unit in each.by_status("done")
    )
    columns = add_new_client_columns(columns, {name for summary in summaries for name in summary})
    table = [Row(configuration, {}) for configuration in configurations]
    blocks: dict[str, list[Row]] = {}
    for row in table:
        blocks.setdefault(row.configuration.block, []).append(row)
    for column in columns:
        done = (unit for row in table for unit in row.configuration.by_status("done"))
        always = column.key in (*HEADLINES, *(each.key for each in COLUMNS_ON_REQUEST))
        if not always and not any(math.isfinite(column.value(unit)) for unit in done):
            continue
        for block in blocks.values():
            _fill_column(block, column)
    return table


def headline_of(configurations: Iterable[Configuration]) -> Column:
    """Return the column that a comparison of these rests on."""
    return next(column for column in COLUMNS if column.window == window_of(configurations))


def headline(table: Sequence[Row]) -> Column | None:
    """Return the column that a comparison rests on; None for a table without it."""
    found = (
        c for key in HEADLINES for c in COLUMNS if c.key == key and table and key in table[0].cells
    )
    return next((column._replace(interval=True) for column in found), None)


def _fill_column(block: list[Row], column: Column) -> None:
    """Compute the cells of a column for the rows of a block, mark the best, and test the others
    against it."""
    by_seed = []
    for row in block:
        done = row.configuration.by_status("done")
        values = {
            key: v for key, unit in _key_units(done) if math.isfinite(v := column.value(unit))
        }
        by_seed.append(values)
        numbers = list(values.values())
        row.cells[column.key] = Cell(
            *mean_and_deviation(numbers),
            len(values),
            len(done),
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
    shared = {i: [seed for seed in by_seed[i] if seed in by_seed[best]] for i in others}
    pairs = {
        i: ([by_seed[i][s] for s in seeds], [by_seed[best][s] for s in seeds])
        for i, seeds in shared.items()
        if len(seeds) >= FEWEST
    }
    corrected = dict(zip(pairs, holm([paired_t(*pair) for pair in pairs.values()]), strict=True))
    behind = {i: difference(*pair) for i, pair in pairs.items()}
    for i in whole:
        block[i].cells[column.key] = cells[i]._replace(
            best=i not in others, p=corrected.get(i), behind=behind.get(i)
        )


def _make_interval(numbers: Sequence[float], column: Column) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean, without what no accuracy can be."""
    found = interval(numbers)
    if found is None or column.kind != "percent":
        return found
    return max(found[0], 0.0), min(found[1], 1.0)


def _key_units(units: Iterable[Unit]) -> Iterator[tuple[tuple[int, int], Unit]]:
    """Yield ((seed, number of earlier runs with this seed), run): the key distinguishes runs that
    share a seed."""
    often: Counter[int] = Counter()
    for unit in units:
        yield (unit.seed, often[unit.seed]), unit
        often[unit.seed] += 1
