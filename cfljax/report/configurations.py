"""Enters: results folders. Leaves: configurations, each with the runs that differ in nothing but
their seed."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cfljax.methods import find_about
from cfljax.registry.options import Table, show
from cfljax.results.result import Results
from cfljax.store import Store
from cfljax.store.rows import label_of, make_rows, unify_paths


class Unit(NamedTuple):
    """The record of a run, and the store that has its arrays."""

    id: str
    record: Table
    store: Store

    @property
    def status(self) -> str:
        """`done`, `diverged` or `failed`."""
        return str(self.record["status"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.record["seed"])


class Configuration(NamedTuple):
    """One method with its options, and its runs with different seeds: a row of the table, a curve,
    a panel."""

    # Name of its results folder among the report's folders; "" where there is only one
    folder: str
    method: str
    label: str
    # (name, value) of the options that vary, as tables show them
    options: tuple[tuple[str, str], ...]
    # The options among them that belong to the data
    data: tuple[tuple[str, str], ...]
    # Equal for configurations that were trained on the same data: only those are compared
    block: str
    units: list[Unit]
    # The options in which it differs from others of its label
    distinguishing: tuple[tuple[str, str], ...] = ()

    @property
    def display_name(self) -> str:
        """The label if the spec gives one, else the name that papers have for the method."""
        if self.label != self.method:
            return self.label
        known = find_about(self.method)
        return known.title if known else self.label

    @property
    def name(self) -> str:
        """The label with all options that vary."""
        return _join(self.folder and f"{self.folder}:", self.label, self.options)

    @property
    def legend(self) -> str:
        """The name in legends, without options that follow from the label."""
        own = [pair for pair in self.options if pair in self.data or pair in self.distinguishing]
        return _join(self.folder and f"{self.folder}:", self.display_name, own)

    @property
    def short(self) -> str:
        """The label in the rows of a block, where folder and data stand beside and above."""
        return _join(self.label, [pair for pair in self.distinguishing if pair not in self.data])

    @property
    def title(self) -> str:
        """As `short`, for the page and for papers."""
        return _join(
            self.display_name, [pair for pair in self.distinguishing if pair not in self.data]
        )

    @property
    def settings(self) -> str:
        """The options that all rows of its label have and others do not, as `tune` chooses them; ""
        for none."""
        told = {*self.data, *self.distinguishing}
        return _join([pair for pair in self.options if pair not in told])

    @property
    def heading(self) -> str:
        """The title of its block; "" where the data do not vary."""
        return " ".join(f"{k}={v}" for k, v in self.data)

    def by_status(self, status: str) -> list[Unit]:
        """Its runs with this status: `done`, `diverged` or `failed`."""
        return [unit for unit in self.units if unit.status == status]

    @property
    def runs(self) -> str:
        """The number of runs: `5`, or `5 (1 diverged)`."""
        return f"{len(self.units)} ({self.lost})" if self.lost else str(len(self.units))

    @property
    def lost(self) -> str:
        """How many runs did not end well: `1 diverged, 2 failed`; "" for none. A configuration that
        lost runs is not compared with others, as `tune` drops a setting that lost a run: the mean
        of the runs that are left would flatter it."""
        return ", ".join(
            f"{n} {s}" for s in ("diverged", "failed") if (n := len(self.by_status(s)))
        )


def _join(*words: str | Iterable[tuple[str, str]]) -> str:
    """Join the words, and name=value of each option."""
    return " ".join(
        part
        for word in words
        for part in ([word] if isinstance(word, str) else [f"{k}={v}" for k, v in word])
        if part
    )


class Collected(NamedTuple):
    """The configurations of all folders of a report."""

    title: str
    stores: list[Store]
    configurations: list[Configuration]
    # The number of runs that the plans list; of a folder without a plan, the runs that it has
    planned: int
    # The number of runs of earlier specs, which no configuration has
    left_out: int
    # Whether the best is the first on each data set; otherwise somebody has given an order
    best_first: bool = False

    @property
    def units(self) -> list[Unit]:
        """Every run once, in order: two configurations may share one."""
        every = [unit for configuration in self.configurations for unit in configuration.units]
        return list({(unit.store.folder, unit.id): unit for unit in every}.values())


def collect(
    sources: Iterable[str | os.PathLike[str] | Results], target: float | None = None
) -> Collected:
    """Collect the configurations of results folders, or of results that are read already, in the
    order of their plans; StoreError if a folder is no results folder. `target`: the accuracy to
    which rounds and bytes are counted in the folders."""
    distinct = {
        os.path.realpath(s.store.folder if isinstance(s, Results) else s): s for s in sources
    }.values()
    each = [
        source if isinstance(source, Results) else Results(source, target=target)
        for source in distinct
    ]
    names = _name_folders([results.store.folder for results in each])
    configurations: dict[tuple[object, ...], Configuration] = {}
    titles: dict[str, None] = {}
    planned = 0
    shown_records = unify_paths(*(results.records for results in each))
    for results, folder, records in zip(each, names, shown_records, strict=True):
        plan = results.sweep
        titles.setdefault(str(plan.get("name") or results.store.folder.absolute().name))
        planned += len(plan.get("units") or results.records)
        table = make_rows(records, plan.get("labels"))
        shown = _shorten_names(table)
        for record in table:
            new = _make_configuration(folder, record, shown)
            configurations.setdefault(new[:-2], new).units.append(
                Unit(record["id"], record, results.store)
            )
    left_out = sum(results.left_out for results in each)
    return Collected(
        ", ".join(titles),
        [r.store for r in each],
        _distinguish(list(configurations.values())),
        planned,
        left_out,
    )


class Planned(NamedTuple):
    """A row of the table that a sweep plans, with the ids of its runs."""

    label: str
    # The name that papers have for the method, or the label, with the options of this row
    name: str
    units: frozenset[str]


def list_planned(sweep: Table) -> list[Planned]:
    """List the rows that a sweep plans (`Spec.describe_sweep`), in their order."""
    rows: dict[tuple[str, str], tuple[Table, list[str]]] = {}
    labels = sweep.get("labels") or []
    short = _shorten_names({"varies": v} for each in labels for v in each.get("varies") or ())
    for each in labels:
        for unit, varies in zip(each["units"], each.get("varies") or (), strict=False):
            key = (each["label"], json.dumps(varies, sort_keys=True, default=str))
            rows.setdefault(key, (varies, []))[1].append(unit)
    planned = []
    for (label, _), (varies, units) in rows.items():
        alike = [other for (own, _), (other, _) in rows.items() if own == label]
        options = [
            (short[name], show(value))
            for name, value in varies.items()
            if any(other.get(name) != value for other in alike)
        ]
        known = find_about(label)
        name = _join(label if known is None else known.title, options)
        planned.append(Planned(label, name, frozenset(units)))
    return planned


def _distinguish(configurations: list[Configuration]) -> list[Configuration]:
    """Return them, each with the options that some configuration of its label lacks."""
    alike: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for each in configurations:
        alike.setdefault((each.folder, each.label), set(each.options)).intersection_update(
            each.options
        )
    return [
        each._replace(
            distinguishing=tuple(
                pair for pair in each.options if pair not in alike[each.folder, each.label]
            )
        )
        for each in configurations
    ]


def _make_configuration(folder: str, record: Table, shown: dict[str, str]) -> Configuration:
    """Make the configuration of a record, without runs. `shown`: the names of options in tables."""
    options = {
        name: (shown[name], value if isinstance(value, str) else show(value))
        for name, value in record["varies"].items()
    }
    data = tuple(pair for name, pair in options.items() if name.startswith("data."))
    block = json.dumps([record["config"].get("data", {}), data], sort_keys=True, default=str)
    return Configuration(
        folder, record["method"], label_of(record), tuple(options.values()), data, block, []
    )


def _name_folders(folders: list[Path]) -> list[str]:
    """Return names that distinguish the folders: their last parts, or whole paths if two have the
    same last part; "" for only one."""
    if len(folders) == 1:
        return [""]
    last = [folder.absolute().name for folder in folders]
    return last if len(set(last)) == len(last) else [str(folder) for folder in folders]


def _shorten_names(records: Iterable[Table]) -> dict[str, str]:
    """Map the dotted name of an option to its last word, or to the whole name if two options share
    that word; `data.name` -> `data`."""
    dotted = dict.fromkeys(name for record in records for name in record["varies"])
    short = {
        name: name.removesuffix(".name") if name.endswith(".name") else name.split(".", 1)[-1]
        for name in dotted
    }
    often = Counter(short.values())
    return {name: word if often[word] == 1 else name for name, word in short.items()}
