"""Enters: results folders. Leaves: ReportData, all that the tables, the page and the figures show,
read once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cfljax.registry.options import Table
from cfljax.report.columns import select_columns
from cfljax.report.comparison import MAXIMUM, Row, rows
from cfljax.report.configurations import Collected, Configuration, collect
from cfljax.report.curves import Curves, chosen, curves
from cfljax.report.run_pictures import RunPictures, changes_once, run_pictures
from cfljax.results.result import Results
from cfljax.store import DamagedWarning
from cfljax.store.errata import describe_errata


class ReportData(NamedTuple):
    """The data of a report."""

    collected: Collected
    # One for each configuration
    table: list[Row]
    # The configurations that figures show
    drawn: list[Configuration]
    # For each of `drawn`
    curves: list[Curves]
    # For each of `drawn`; None where no run can be read
    pictures: list[RunPictures | None]
    # A line for each file that could not be read, and for runs of known faults
    problems: list[str]
    # The accuracy to which rounds and bytes are counted
    target: float | None


def read(
    sources: Iterable[str | os.PathLike[str] | Results],
    target: float | None = None,
    maximum: bool = False,
    names: Sequence[str] = (),
) -> ReportData:
    """Read the data of a report on results folders, or on results that were read with this `target`
    already; StoreError if a folder is no results folder. `maximum`: the table has the highest test
    accuracy, too. `names`: the only columns that it has, by their headings, the first words of
    these, or their keys."""
    problems: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedWarning)
        collected = collect(sources, target)
        drawn = chosen(collected.configurations)
        lines = [curves(configuration, problems) for configuration in drawn]
        pictures = changes_once([run_pictures(configuration, problems) for configuration in drawn])
    problems += describe_folders(collected)
    said = [str(w.message) for w in caught if issubclass(w.category, DamagedWarning)] + problems
    return ReportData(
        collected,
        make_table(collected, maximum, names),
        drawn,
        lines,
        pictures,
        list(dict.fromkeys(said)),
        target,
    )


def make_table(
    collected: Collected, maximum: bool = False, names: Sequence[str] = (), where: str = "--columns"
) -> list[Row]:
    """Make the rows of the comparison table; `maximum` and `names` as for `read`, `where` as for
    `select_columns`."""
    computed = []
    if names:
        from cfljax.report.asked import compute_columns

        computed = compute_columns(names, collected.units)
    table = rows(collected.configurations, lambda each: maximum or each.key != MAXIMUM, computed)
    return select_columns(table, names, where) if names else table


def describe_folders(collected: Collected) -> list[str]:
    """Return a line for each folder with runs that a mended fault concerns."""
    records: dict[Path, list[Table]] = {}
    for unit in collected.units:
        records.setdefault(unit.store.folder, []).append(unit.record)
    lines = [describe_errata(folder, each) for folder, each in records.items()]
    return [line for line in lines if line]
