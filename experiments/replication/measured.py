"""Enters: a published table and results folders. Leaves: a Section: each cell measured on its runs, and each claim decided."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Sequence

from cfljax.config.changes import missing
from cfljax.errors import SpecError
from cfljax.registry.options import Table, show
from cfljax.report.configurations import Unit, option_of
from cfljax.results.result import Result, Results
from experiments.replication.claims import signed_difference, verdict
from experiments.replication.published import Cell, Claim, Published
from experiments.replication.quantity import Quantity
from experiments.replication.size import below_size
from experiments.replication.verdicts import Measured, Verdict

LAST_TEN = Quantity(summary="accuracy_last10")


@dataclasses.dataclass(frozen=True)
class Section:
    """A published table, measured."""

    published: Published
    folders: list[Results]
    """The folders that have runs of the table, and those that have no runs at all."""
    units: list[Unit]
    """The runs that measure its cells."""
    drawn_runs: list[list[list[Unit]]]
    """By figure and curve: the runs of the curve."""
    measured: dict[str, Measured]
    """By the name of the cell."""
    last_ten: dict[str, Measured]
    """By the name of the cell, for cells that are a maximum over rounds: the mean of the last ten evaluations."""
    lost: dict[str, int]
    """By the name of the cell: the number of its runs that diverged or failed, which no mean includes."""
    verdicts: list[Verdict]
    """On the claims of the table, in their order."""
    older: dict[str, list[str]]
    """By the name of the cell, where an older version has computed its runs: the changes since then."""
    outdated: list[Unit]
    """The runs among `units` that an older version has computed."""
    draws: dict[str, int]
    """By the name of the cell: how many draws of the data its runs have."""
    small: dict[str, bool]
    """By the name of the cell: whether its runs are smaller than the paper's."""

    def seeds(self, name: str) -> str:
        """The number of seeds of a cell: `3`, or `2 (1 diverged or failed)`."""
        seeds, lost = len(self.measured[name].values), self.lost[name]
        return (with_draws(seeds, self.draws[name]) if seeds else "") + (f" ({lost} diverged or failed)" if lost else "")


def with_draws(seeds: int, draws: int) -> str:
    """The number of seeds, and of draws of the data where there are several: `3`, `8, 6 draws of the data` or `3, a draw each`."""
    each = ", a draw each" if draws == seeds else f", {draws} draws of the data"
    return f"{seeds}{each if draws > 1 else ''}"


def section(published: Published, folders: list[Results], unaffected: Sequence[str] = ()) -> Section:
    """Measure every cell of the table and decide every claim. `unaffected`: changes of later versions that leave the runs as the
    spec has them."""
    rows = [(row, results) for results in folders for row in results.rows]  # a run that two rows share has the label of each
    units = [Unit(row["id"], results.records[row["id"]] | {"label": row["label"]}, results.store) for row, results in rows]
    shrunk = {results.store.folder for results in folders if results.records and below_size(results)}
    found = Section(published, [], [], [], {}, {}, {}, [], {}, [], {}, {})
    used: dict[str, Unit] = {}
    for cell in published.cells:
        fitting = _newest(_fitting(units, cell.where), unaffected)
        chosen = _finished(published, cell.name, fitting)
        found.lost[cell.name] = len(fitting) - len(chosen)
        used |= {unit.id: unit for unit in chosen}
        found.measured[cell.name] = _measured(cell, cell.take, chosen, units, published)
        if cell.take.summary == "accuracy_max":
            found.last_ten[cell.name] = _measured(cell, LAST_TEN, chosen, units, published)
        if changes := dict.fromkeys(change for unit in chosen for change in _outdated(unit, unaffected)):
            found.older[cell.name] = list(changes)
        found.draws[cell.name] = len({data for _, data in map(_draw, chosen)})
        found.small[cell.name] = any(unit.store.folder in shrunk for unit in chosen)
    found.units.extend(used.values())
    found.outdated.extend(unit for unit in used.values() if _outdated(unit, unaffected))
    found.folders.extend(results for results in folders if not results.records or used.keys() & results.records.keys())
    for figure in published.figures:
        runs = [_newest(_fitting(units, where), unaffected) for where in figure.curves.values()]
        found.drawn_runs.append([_finished(published, figure.title, each) for each in runs])
    found.verdicts.extend(_decided(claim, found) for claim in published.claims)
    return found


def _decided(claim: Claim, of: Section) -> Verdict:
    small, older = (any(marked.get(name) for name in claim.cells) for marked in (of.small, of.older))
    return _with_last_ten(verdict(claim, of.published, of.measured, small, older), claim, of.last_ten)


def _outdated(unit: Unit, unaffected: Sequence[str]) -> list[str]:
    """What is computed in another way since this run was made."""
    changes = missing(unit.record["config"], unit.record.get("changes") or ())
    return [change.name for change in changes if change.name not in unaffected]


def _newest(units: list[Unit], unaffected: Sequence[str]) -> list[Unit]:
    """The runs of one configuration without those of an older version that today's version has made again."""
    again = {_draw(unit) for unit in units if not _outdated(unit, unaffected)}
    return [unit for unit in units if _draw(unit) not in again or not _outdated(unit, unaffected)]


def _draw(unit: Unit) -> tuple[int, str]:
    """What a run draws: its seed, and that of its data, which is the seed of the run where the spec says so."""
    data = (unit.record["config"].get("data") or {}).get("seed", 0)
    return unit.seed, str(unit.seed if data == "run" else data)


def _fitting(units: list[Unit], where: Table) -> list[Unit]:
    """The runs that `where` selects, each run of a folder once."""
    return list({(unit.store.folder, unit.id): unit for unit in units if fits(unit.record, where)}.values())


def _with_last_ten(decided: Verdict, claim: Claim, last_ten: dict[str, Measured]) -> Verdict:
    """Add to the verdict on a difference of two maxima what the difference is over the last ten evaluations."""
    if claim.kind != "difference" or not all(name in last_ten and last_ten[name].values for name in claim.cells):
        return decided
    return decided._replace(ours=f"{decided.ours}; last ten {signed_difference(claim, last_ten)}") if decided.ours else decided


def _finished(published: Published, name: str, fitting: list[Unit]) -> list[Unit]:
    """The runs that are done; SpecError if several have the same seed."""
    chosen = [unit for unit in fitting if unit.status == "done"]
    for (seed, _), often in Counter(map(_draw, chosen)).items():
        if often > 1:
            raise SpecError(f"{published.file}: cell {show(name)}: selects {often} runs of seed {seed}; narrow `where`")
    return chosen


def fits(record: Table, where: Table) -> bool:
    """Whether `where` selects this record."""
    known = {"method": record.get("method"), "label": record.get("label")}
    return all((known[key] if key in known else option_of(record["config"], key)) == wanted for key, wanted in where.items())


def _measured(cell: Cell, take: Quantity, chosen: list[Unit], units: list[Unit], published: Published) -> Measured:
    scale = published.scale if take.fraction else 1.0
    values: dict[Hashable, float] = {}
    rounds: dict[Hashable, int] = {}
    if take.reaches is not None:
        rounds |= {_draw(unit): unit.record["config"]["train"]["rounds"] for unit in chosen}
    for unit in sorted(chosen, key=_draw):
        if take.summary:  # the record has it, so that no arrays are read
            value = take.of(Result(unit.record, {}))
        else:
            value = take.of(Result(*unit.store.read(unit.id)), _clusters_of(cell, unit, units, published))
        if not math.isnan(value):
            values[_draw(unit)] = scale * value
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
