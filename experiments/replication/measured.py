"""Enters: a published table and results folders. Leaves: a Section: each cell measured on its runs,
and each claim decided."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

from cfljax.errors import SpecError
from cfljax.registry.gone import without_gone
from cfljax.registry.options import Table, show
from cfljax.report.configurations import Unit
from cfljax.results.result import Result, Results
from cfljax.store.rows import option_of
from experiments.replication.claims import signed_difference, verdict
from experiments.replication.costs import at_target, costs, draw_of
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
    """By the name of the cell, for cells that are a maximum over rounds: the mean of the last ten
    evaluations."""
    lost: dict[str, int]
    """By the name of the cell: the number of its runs that diverged or failed, which no mean
    includes."""
    verdicts: list[Verdict]
    """On the claims of the table, in their order."""
    draws: dict[str, int]
    """By the name of the cell: how many draws of the data its runs have."""
    small: dict[str, bool]
    """By the name of the cell: whether its runs are smaller than the paper's."""
    runs: dict[str, list[Unit]]
    """By the name of the cell: its runs."""

    def seeds(self, name: str) -> str:
        """Return the number of seeds of a cell: `3`, or `2 (1 diverged or failed)`."""
        seeds, lost = len(self.measured[name].values), self.lost[name]
        return (with_draws(seeds, self.draws[name]) if seeds else "") + (
            f" ({lost} diverged or failed)" if lost else ""
        )


def with_draws(seeds: int, draws: int) -> str:
    """Format the number of seeds, and of draws of the data where there are several: `3`, `8, 6
    draws` or `3, a draw each`."""
    each = ", a draw each" if draws == seeds else f", {draws} draws"
    return f"{seeds}{each if draws > 1 else ''}"


def section(published: Published, folders: list[Results]) -> Section:
    """Measure every cell of the table and decide every claim."""
    rows = [
        (row, results) for results in folders for row in results.rows
    ]  # a run that two rows share has the label of each
    units = [
        Unit(row["id"], results.records[row["id"]] | {"label": row["label"]}, results.store)
        for row, results in rows
    ]
    run = [results for results in folders if results.records]
    shrunk, but_rounds = (
        {each.store.folder for each in run if below_size(each, rounds)} for rounds in (True, False)
    )
    found = Section(published, [], [], [], {}, {}, {}, [], {}, {}, {})
    used: dict[str, Unit] = {}
    for cell in published.cells:
        fitting = _select(units, cell.where)
        chosen = _select_finished(published, cell.name, fitting)
        found.lost[cell.name] = sum(unit.status != "done" for unit in fitting)
        used |= {unit.id: unit for unit in chosen}
        found.measured[cell.name] = _measure(cell, cell.take, chosen, units, published)
        if cell.take.summary == "accuracy_max":
            found.last_ten[cell.name] = _measure(cell, LAST_TEN, chosen, units, published)
        found.draws[cell.name] = len({data for _, data in map(draw_of, chosen)})
        if cell.minus:
            other = found.measured[cell.minus].values
            apart = {
                draw: value - other[draw]
                for draw, value in found.measured[cell.name].values.items()
                if draw in other
            }
            found.measured[cell.name] = Measured(apart)
        reached = cell.take.to is not None  # rounds that all of its runs have
        reached |= cell.take.reaches is not None and all(
            map(math.isfinite, found.measured[cell.name].values.values())
        )
        found.small[cell.name] = any(
            unit.store.folder in (but_rounds if reached else shrunk) for unit in chosen
        )
        found.runs[cell.name] = chosen
    found.units.extend(used.values())
    found.folders.extend(
        results
        for results in folders
        if not results.records or used.keys() & results.records.keys()
    )
    for figure in published.figures:
        runs = [_select(units, where) for where in figure.curves.values()]
        found.drawn_runs.append([_select_finished(published, figure.title, each) for each in runs])
    found.verdicts.extend(_decide(claim, found) for claim in published.claims)
    return found


def _decide(claim: Claim, of: Section) -> Verdict:
    small = bool(claim.small) or any(of.small.get(name) for name in claim.cells)
    decided = verdict(claim, of.published, of.measured, small)
    takes = [of.published.cell(name).take for name in claim.cells]
    if (
        claim.kind == "reduction"
        and decided.ours
        and all(take.reaches is not None for take in takes)
    ):
        decided = decided._replace(
            cost=costs(
                *(
                    at_target(of.runs[name], take)
                    for name, take in zip(claim.cells, takes, strict=True)
                )
            )
        )
    return _add_last_ten(decided, claim, of.last_ten)


def _select(units: list[Unit], where: Table) -> list[Unit]:
    """Select the runs that `where` selects, each once, also where several folders have it."""
    return list({unit.id: unit for unit in units if fits(unit.record, where)}.values())


def _add_last_ten(decided: Verdict, claim: Claim, last_ten: dict[str, Measured]) -> Verdict:
    """Add to the verdict on a difference of two maxima what the difference is over the last ten
    evaluations."""
    if claim.kind != "difference" or not all(
        name in last_ten and last_ten[name].values for name in claim.cells
    ):
        return decided
    return (
        decided._replace(ours=f"{decided.ours}; last ten {signed_difference(claim, last_ten)}")
        if decided.ours
        else decided
    )


def _select_finished(published: Published, name: str, fitting: list[Unit]) -> list[Unit]:
    """Return the runs that are done; SpecError if several have the same seed. A run that two
    folders have, made by versions that call it differently, is that of the first."""
    done = [unit for unit in fitting if unit.status == "done"]
    chosen: list[Unit] = []
    for unit in done:
        twin = next((other for other in chosen if draw_of(other) == draw_of(unit)), None)
        if twin is None:
            chosen.append(unit)
        elif twin.store.folder == unit.store.folder or _config(twin) != _config(unit):
            often = sum(draw_of(other) == draw_of(unit) for other in done)
            raise SpecError(
                f"{published.file}: cell {show(name)}: selects {often} runs of seed {unit.seed}; "
                "narrow `where`"
            )
    return chosen


def _config(unit: Unit) -> Table:
    """Return the configuration of a run, without where its plug-ins were."""
    config = without_gone(unit.record["config"])
    return {key: value for key, value in config.items() if key != "plugins"}


def fits(record: Table, where: Table) -> bool:
    """Return whether `where` selects this record."""
    known = {"method": record.get("method"), "label": record.get("label")}
    return all(
        (known[key] if key in known else option_of(record["config"], key)) == wanted
        for key, wanted in where.items()
    )


def _measure(
    cell: Cell, take: Quantity, chosen: list[Unit], units: list[Unit], published: Published
) -> Measured:
    scale = published.scale if take.fraction else 1.0
    values: dict[Hashable, float] = {}
    rounds: dict[Hashable, int] = {}
    flat: dict[Hashable, bool] = {}
    if take.reaches is not None:
        rounds |= {draw_of(unit): unit.record["config"]["train"]["rounds"] for unit in chosen}
    for unit in sorted(chosen, key=draw_of):
        if take.summary:  # the record has it, so that no arrays are read
            value = take.of(Result(unit.record, {}))
        else:
            run = Result(*unit.store.read(unit.id))
            value = take.of(run, _find_clusters(cell, unit, units, published))
            if math.isinf(value):
                flat[draw_of(unit)] = take.flat(run)
        if not math.isnan(value):
            values[draw_of(unit)] = scale * value
    return Measured(values, rounds, flat)


def _find_clusters(
    cell: Cell, unit: Unit, units: list[Unit], published: Published
) -> Result | None:
    """Return the run of the same data, model and seed whose clusters the cell's quantity means;
    None if there is none."""
    if cell.labels_of is None:
        return None

    def setting(each: Unit) -> tuple[object, ...]:
        return (each.seed, *(each.record["config"].get(key) for key in ("data", "model")))

    fitting = _select([each for each in units if setting(each) == setting(unit)], cell.labels_of)
    same = _select_finished(published, f"{cell.name}, labels_of", fitting)
    return Result(*same[0].store.read(same[0].id)) if same else None
