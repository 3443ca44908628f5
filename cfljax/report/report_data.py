"""Enters: results folders. Leaves: ReportData, all that the tables, the page and the figures show, read once."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cfljax.errors import SpecError
from cfljax.report.comparison import COLUMNS, MAXIMUM, MORE, Column, Row, rows, seconds, sum_bytes
from cfljax.report.configurations import Collected, Configuration, Unit, collect
from cfljax.report.curves import Curves, chosen, curves
from cfljax.report.run_pictures import RunPictures, changes_once, run_pictures
from cfljax.report.tables import only
from cfljax.results.models import KeptModels
from cfljax.results.predict import generalisation, wasserstein_adjusted
from cfljax.results.result import Results
from cfljax.store import DamagedWarning


class ReportData(NamedTuple):
    """The data of a report."""

    collected: Collected
    table: list[Row]  # One for each configuration
    drawn: list[Configuration]  # The configurations that figures show
    curves: list[Curves]  # For each of `drawn`
    pictures: list[RunPictures | None]  # For each of `drawn`; None where no run can be read
    problems: list[str]  # A line for each file that could not be read
    target: float | None  # The accuracy to which rounds and bytes are counted


def read(
    sources: Iterable[str | os.PathLike[str] | Results],
    target: float | None = None,
    maximum: bool = False,
    names: Sequence[str] = (),
) -> ReportData:
    """Read the data of a report on results folders, or on results that were read with this `target` already; StoreError if a folder
    is no results folder. `maximum`: the table has the highest test accuracy, too. `names`: the only columns that it has, by
    their headings, the first words of these, or their keys."""
    problems: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedWarning)
        collected = collect(sources, target)
        drawn = chosen(collected.configurations)
        lines = [curves(configuration, problems) for configuration in drawn]
        pictures = changes_once([run_pictures(configuration, problems) for configuration in drawn])
    said = [str(w.message) for w in caught if issubclass(w.category, DamagedWarning)] + problems
    columns = [column for column in COLUMNS if maximum or column.key != MAXIMUM]
    if names:
        columns += compute_columns(names, collected.units)
    table = rows(collected.configurations, columns)
    return ReportData(collected, only(table, names) if names else table, drawn, lines, pictures, list(dict.fromkeys(said)), target)


Values = Callable[[Sequence[Unit]], list[float]]


def _from_arrays(score: Callable[[KeptModels], float], prefixes: tuple[str, ...]) -> Values:
    return lambda units: [score(KeptModels(*unit.store.read(unit.id, prefixes))) for unit in units]


def _generalisation(units: Sequence[Unit]) -> list[float]:
    found = _from_arrays(generalisation, ("models", "labels"))(units)
    if units and all(map(math.isnan, found)):
        raise SpecError("--columns generalisation: needs models and true groups; compute the runs with --keep models")
    return found


def _over_fedavg(quantity: Callable[[Unit], float]) -> Values:
    """Divide the quantity by FedAvg's with the same seed, data, model and training in the same folder; NaN without one."""

    def values(units: Sequence[Unit]) -> list[float]:
        first = {_alike(unit): quantity(unit) for unit in reversed(units) if unit.record["method"] == "fedavg"}
        return [quantity(unit) / (first.get(_alike(unit)) or math.nan) for unit in units]

    return values


def _alike(unit: Unit) -> str:
    same = [unit.record["config"].get(table) for table in ("data", "model", "train")]
    return json.dumps([str(unit.store.folder), unit.seed, *same], sort_keys=True)


_COMPUTED: dict[str, Values] = {
    "generalisation": _generalisation,
    "was": _from_arrays(wasserstein_adjusted, ("labels",)),
    "bytes_over_fedavg": _over_fedavg(sum_bytes),
    "seconds_over_fedavg": _over_fedavg(seconds),
}


def compute_columns(names: Sequence[str], units: Sequence[Unit]) -> list[Column]:
    """Return those of MORE that are named, with their values for these runs."""
    done = [unit for unit in units if unit.status == "done"]
    return [_compute(column, done) for column in MORE if {*names} & {column.key, column.heading}]


def _compute(column: Column, units: Sequence[Unit]) -> Column:
    found = dict(zip([(unit.store.folder, unit.id) for unit in units], _COMPUTED[column.key](units), strict=True))
    return column._replace(value=lambda unit: found[unit.store.folder, unit.id])
