"""Enters: a published table and results folders. Leaves: a Section: each cell measured on its runs, and each claim decided."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter

from cfljax.errors import SpecError
from cfljax.registry.options import Table, show
from cfljax.report.configurations import Unit, option_of
from cfljax.report.replication.claims import Measured, Verdict, signed_difference, verdict
from cfljax.report.replication.published import Cell, Claim, Published
from cfljax.report.replication.quantity import Quantity
from cfljax.results.result import Result, Results

LAST_TEN = Quantity(summary="accuracy_last10")


@dataclasses.dataclass(frozen=True)
class Section:
    """A published table, measured."""

    published: Published
    folders: list[Results]
    """The folders that have runs of the table, and those that have no runs at all."""
    units: list[Unit]
    """The runs that measure its cells."""
    measured: dict[str, Measured]
    """By the name of the cell."""
    last_ten: dict[str, Measured]
    """By the name of the cell, for cells that are a maximum over rounds: the mean of the last ten evaluations."""
    lost: dict[str, int]
    """By the name of the cell: the number of its runs that diverged or failed, which no mean includes."""
    verdicts: list[Verdict]
    """On the claims of the table, in their order."""

    def seeds(self, name: str) -> str:
        """The number of seeds of a cell: `3`, or `2 (1 diverged or failed)`."""
        seeds, lost = len(self.measured[name].values), self.lost[name]
        return (str(seeds) if seeds else "") + (f" ({lost} diverged or failed)" if lost else "")


def section(published: Published, folders: list[Results]) -> Section:
    """Measure every cell of the table and decide every claim."""
    rows = [(row, results) for results in folders for row in results.rows]  # a run that two rows share has the label of each
    units = [Unit(row["id"], results.records[row["id"]] | {"label": row["label"]}, results.store) for row, results in rows]
    measured, last_ten, lost = {}, {}, {}
    used: dict[str, Unit] = {}
    for cell in published.cells:
        fitting = _fitting(units, cell.where)
        chosen = _finished(published, cell.name, fitting)
        lost[cell.name] = len(fitting) - len(chosen)
        used |= {unit.id: unit for unit in chosen}
        measured[cell.name] = _measured(cell, cell.take, chosen, units, published)
        if cell.take.summary == "accuracy_max":
            last_ten[cell.name] = _measured(cell, LAST_TEN, chosen, units, published)
    asked = [results for results in folders if not results.records or used.keys() & results.records.keys()]
    small = any(below_size(results) for results in asked if results.records)
    verdicts = [_with_last_ten(verdict(claim, published, measured, small), claim, last_ten) for claim in published.claims]
    return Section(published, asked, list(used.values()), measured, last_ten, lost, verdicts)


def _fitting(units: list[Unit], where: Table) -> list[Unit]:
    """The runs that `where` selects, each run of a folder once."""
    return list({(unit.store.folder, unit.id): unit for unit in units if fits(unit.record, where)}.values())


def flags_of(results: Results) -> list[str]:
    """The `--set` flags that the sweep of a folder was started with."""
    return list(dict.fromkeys(re.findall(r"^# --set (.*)$", results.store.read_spec() or "", re.MULTILINE)))


def below_size(results: Results) -> bool:
    """Whether flags make the runs smaller than the spec, which is as large as the paper's: by another size or fewer rounds."""
    return any(re.match(r"size=(?!full$)|train\.(rounds|epochs|steps)=", flag) for flag in flags_of(results))


def _with_last_ten(decided: Verdict, claim: Claim, last_ten: dict[str, Measured]) -> Verdict:
    """Add to the verdict on a difference of two maxima what the difference is over the last ten evaluations."""
    if claim.kind != "difference" or not all(name in last_ten and last_ten[name].values for name in claim.cells):
        return decided
    return decided._replace(numbers=f"{decided.numbers}; last ten {signed_difference(claim, last_ten)}")


def _finished(published: Published, name: str, fitting: list[Unit]) -> list[Unit]:
    """The runs that are done; SpecError if several have the same seed."""
    chosen = [unit for unit in fitting if unit.status == "done"]
    for seed, often in Counter(unit.seed for unit in chosen).items():
        if often > 1:
            raise SpecError(f"{published.file}: cell {show(name)}: selects {often} runs of seed {seed}; narrow `where`")
    return chosen


def fits(record: Table, where: Table) -> bool:
    """Whether `where` selects this record."""
    known = {"method": record.get("method"), "label": record.get("label")}
    return all((known[key] if key in known else option_of(record["config"], key)) == wanted for key, wanted in where.items())


def _measured(cell: Cell, take: Quantity, chosen: list[Unit], units: list[Unit], published: Published) -> Measured:
    scale = published.scale if take.reaches is None else 1.0
    values: dict[int, float] = {}
    rounds = {unit.seed: unit.record["config"]["train"]["rounds"] for unit in chosen} if take.reaches is not None else {}
    for unit in sorted(chosen, key=lambda u: u.seed):
        if take.summary:  # the record has it, so that no arrays are read
            value = take.of(Result(unit.record, {}))
        else:
            value = take.of(Result(*unit.store.read(unit.id)), _clusters_of(cell, unit, units, published))
        if not math.isnan(value):
            values[unit.seed] = scale * value
    return Measured(values, rounds)


def _clusters_of(cell: Cell, unit: Unit, units: list[Unit], published: Published) -> Result | None:
    """The run of the same data, model and seed whose clusters the cell's quantity means; None if there is none."""
    if cell.labels_of is None:
        return None

    def setting(each: Unit) -> tuple[object, ...]:
        return (each.seed, *(each.record["config"].get(key) for key in ("data", "model")))

    fitting = _fitting([each for each in units if setting(each) == setting(unit)], cell.labels_of)
    same = _finished(published, f"{cell.name}, labels_of", fitting)
    return Result(*same[0].store.read(same[0].id)) if same else None
