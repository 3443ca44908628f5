"""From results folders to configurations: the runs that differ in nothing but their seed."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cfljax.registry.options import show
from cfljax.results.frames import label_of
from cfljax.results.result import Results
from cfljax.store import Store
from cfljax.store.places import by_contents
from cfljax.store.rows import rows


class Unit(NamedTuple):
    """A run on record, and where its arrays are."""

    id: str
    record: dict[str, Any]
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
    """What a row of the table, a curve and a panel stand for: one method with its options, over its seeds."""

    folder: str
    """Name of its results folder among those of the report; "" where there is only one."""
    method: str
    label: str
    options: tuple[tuple[str, str], ...]
    """(name, value) of the options that vary, as they are shown."""
    data: tuple[tuple[str, str], ...]
    """Those of them that belong to the data."""
    block: str
    """Equal for configurations that were trained on the same data: only those are compared."""
    units: list[Unit]

    @property
    def name(self) -> str:
        """How legends call it."""
        folder = (f"{self.folder}:",) if self.folder else ()
        return " ".join([*folder, self.label, *(f"{k}={v}" for k, v in self.options)])

    @property
    def short(self) -> str:
        """How the rows of a block call it: without the folder and the data, which stand beside and above them."""
        return " ".join([self.label, *(f"{k}={v}" for k, v in self.options if (k, v) not in self.data)])

    @property
    def heading(self) -> str:
        """How its block is called; "" where the data do not vary."""
        return " ".join(f"{k}={v}" for k, v in self.data)

    def by_status(self, status: str) -> list[Unit]:
        """Its runs that ended in that way."""
        return [unit for unit in self.units if unit.status == status]

    @property
    def runs(self) -> str:
        """`5`, or `5 (1 diverged)`."""
        troubles = [f"{n} {s}" for s in ("diverged", "failed") if (n := len(self.by_status(s)))]
        return f"{len(self.units)} ({', '.join(troubles)})" if troubles else str(len(self.units))


class Collected(NamedTuple):
    """All that a report is about."""

    title: str
    stores: list[Store]
    configurations: list[Configuration]
    planned: int
    """Runs that the plans list, or that are there where there is no plan."""
    left_out: int
    """Runs of earlier specs."""

    @property
    def units(self) -> list[Unit]:
        """Every run once, in order: two configurations may share one."""
        every = [unit for configuration in self.configurations for unit in configuration.units]
        return list({(unit.store.folder, unit.id): unit for unit in every}.values())


def collect(folders: Sequence[str | os.PathLike[str]], target: float | None = None) -> Collected:
    """The configurations of all folders, in the order of their plans; StoreError when one is no results folder. `target`: an
    accuracy to count rounds and bytes to."""
    distinct = list({os.path.realpath(folder): folder for folder in folders}.values())
    return combine([Results(folder, target=target) for folder in distinct])


def combine(each: list[Results]) -> Collected:
    """As `collect`, of results that are read already."""
    names = _names([results.store.folder for results in each])
    found: dict[Any, Configuration] = {}
    titles: dict[str, None] = {}
    planned = 0
    shown_records = by_contents(*(results.records for results in each))
    for results, folder, records in zip(each, names, shown_records, strict=True):
        plan = results.sweep
        titles.setdefault(str(plan.get("name") or results.store.folder.absolute().name))
        planned += len(plan.get("units") or results.records)
        asked = rows(records, plan.get("labels"))
        shown = _shown_names(asked)
        for record in asked:
            made = _configuration(folder, record, shown)
            found.setdefault(made[:-1], made).units.append(Unit(record["id"], record, results.store))
    left_out = sum(results.left_out for results in each)
    return Collected(", ".join(titles), [r.store for r in each], list(found.values()), planned, left_out)


def _configuration(folder: str, record: dict[str, Any], shown: dict[str, str]) -> Configuration:
    options = {name: (shown[name], _plain(value)) for name, value in record["varies"].items()}
    data = tuple(pair for name, pair in options.items() if name.startswith("data."))
    table = record["config"].get("data", {})
    block = json.dumps([table, data], sort_keys=True, default=str)
    method = record["method"]
    return Configuration(folder, method, label_of(record), tuple(options.values()), data, block, [])


def _names(folders: list[Path]) -> list[str]:
    """What tells the folders apart: their own names, or their whole paths where two are called the same."""
    if len(folders) == 1:
        return [""]
    own = [folder.absolute().name for folder in folders]
    return own if len(set(own)) == len(own) else [str(folder) for folder in folders]


def _shown_names(records: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Dotted name -> the last word of it, or all of it where two options end alike; `data.name` -> `data`."""
    dotted = dict.fromkeys(name for record in records for name in record["varies"])
    short = {name: name.removesuffix(".name") if name.endswith(".name") else name.split(".", 1)[-1] for name in dotted}
    often = Counter(short.values())
    return {name: word if often[word] == 1 else name for name, word in short.items()}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else show(value)
