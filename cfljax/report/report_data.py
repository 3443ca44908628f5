"""Enters: results folders. Leaves: ReportData, all that the tables, the page and the figures show,
read once."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table
from cfljax.report import configurations
from cfljax.report.agreement import Agreement, compare_clusterings
from cfljax.report.columns import select_columns
from cfljax.report.comparison import MAXIMUM, Row, headline_of, rows
from cfljax.report.configurations import Collected, Configuration
from cfljax.report.curves import Curves, chosen, curves
from cfljax.report.run_pictures import RunPictures, changes_once, draw_pictures
from cfljax.report.to_fedavg import count_to_fedavg, find_levels
from cfljax.results.result import Results
from cfljax.results.statistics import mean_and_deviation
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
    # How well the clusters of `drawn` agree, one for each data set
    agreements: list[Agreement]


def read(
    sources: Iterable[str | os.PathLike[str] | Results],
    target: float | None = None,
    maximum: bool = False,
    names: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> ReportData:
    """Read the data of a report on results folders, or on results that were read with this `target`
    already; StoreError if a folder is no results folder. `maximum`: the table has the highest test
    accuracy, too. `names`: the only columns that it has, by their headings, the first words of
    these, or their keys. `methods`: as for `collect`."""
    problems: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedWarning)
        collected = collect(sources, target, methods)
        drawn = chosen(collected.configurations)
        lines = [curves(configuration, problems) for configuration in drawn]
        pictures = changes_once(draw_pictures(drawn, problems))
        agreements = compare_clusterings(drawn, problems)
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
        agreements,
    )


def collect(
    sources: Iterable[str | os.PathLike[str] | Results],
    target: float | None = None,
    methods: Sequence[str] = (),
) -> Collected:
    """Collect the configurations of results folders, or of results, in the order of all tables,
    figures and pages: on each data set the best first.

    Args:
      sources: The folders or results.
      target: The accuracy to which rounds and bytes are counted in folders.
      methods: Only these methods, by label, name or title, in this order."""
    given = list(sources)
    collected = configurations.collect(given, target)
    found = _select_methods(collected.configurations, methods)
    # FedAvg is what costs are counted to, even if it is not shown
    if target is None and all(not isinstance(s, Results) or s.target is None for s in given):
        found = count_to_fedavg(found, find_levels(collected.configurations))
    blocks = {block: i for i, block in enumerate(dict.fromkeys(each.block for each in found))}
    # `filter(method=…)` has given an order, too
    own_order = any(isinstance(each, Results) and each.ordered for each in given)
    best_first = not methods and not own_order
    if best_first:
        found.sort(key=_rank_by_accuracy(found))
    found.sort(key=lambda each: blocks[each.block])
    # Runs of other methods are not awaited
    planned = sum(len(each.units) for each in found) if methods else collected.planned
    return collected._replace(configurations=found, planned=planned, best_first=best_first)


def _select_methods(found: list[Configuration], methods: Sequence[str]) -> list[Configuration]:
    """Select the configurations of these methods, in this order; all of them if none is named."""
    if not methods:
        return list(found)
    chosen: list[Configuration] = []
    for name in methods:
        own = [each for each in found if name in _list_names(each)]
        if not own:
            known = dict.fromkeys(name for each in found for name in _list_names(each))
            raise SpecError(f"--methods {name}: no run has it{suggest(name, known)}")
        chosen += [each for each in own if each not in chosen]
    return chosen


def _list_names(configuration: Configuration) -> list[str]:
    """List the names by which a method may be called."""
    return [configuration.label, configuration.method, configuration.display_name]


def _rank_by_accuracy(found: list[Configuration]) -> Callable[[Configuration], float]:
    """Return the key that sorts configurations by the accuracy that a comparison rests on, the best
    first; those without one are last."""
    value = headline_of(found).of

    def key(configuration: Configuration) -> float:
        values = [v for u in configuration.by_status("done") if math.isfinite(v := value(u))]
        return -mean_and_deviation(values)[0] if values else math.inf

    return key


def make_table(
    collected: Collected, maximum: bool = False, names: Sequence[str] = (), where: str = "--columns"
) -> list[Row]:
    """Make the rows of the comparison table; `maximum` and `names` as for `read`, `where` as for
    `select_columns`."""
    computed = []
    if names:
        from cfljax.report.asked import compute_columns

        computed = compute_columns(names, collected.units)
    table = rows(
        collected.configurations, lambda each: maximum or not each.key.endswith(MAXIMUM), computed
    )
    return select_columns(table, names, where) if names else table


def describe_folders(collected: Collected) -> list[str]:
    """Return a line for each folder with runs that a mended fault concerns."""
    records: dict[Path, list[Table]] = {}
    for unit in collected.units:
        records.setdefault(unit.store.folder, []).append(unit.record)
    lines = [describe_errata(folder, each) for folder, each in records.items()]
    return [line for line in lines if line]
