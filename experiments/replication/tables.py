"""Enters: a Section. Leaves: its part of a page in Markdown: how its runs were made, its cells
beside what was published, and what became of each claim."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from experiments.replication.measured import Section
from experiments.replication.provenance import provenance
from experiments.replication.published import Cell, Published
from experiments.replication.verdicts import NOT_RUN, Measured
from experiments.todo import time_of

WORDED = {
    "accuracy_max": "maximum",
    "accuracy_last": "last round",
    "accuracy_last10": "mean of the last ten evaluations",
}
"""Names of quantities in the headings of tables."""


def section_text(each: Section, pictures: str = "", known: Mapping[str, str] | None = None) -> str:
    """Return what is said of one table below its title. `known`: on the page of a paper, the sweeps
    that it describes, and where; its claims stand on the page of all claims then, but for ours."""
    published = each.published
    earlier = known.get(published.sweep) if known and each.units else None
    brief = known is not None
    parts = [
        f"Runs: as of *{earlier}*." if earlier else provenance(each, brief),
        *([pictures] if pictures else []),
    ]
    if _select_shown(each, brief):
        parts.append(_list_cells(each, brief))
    rows = []
    for claim, decided in zip(published.claims, each.verdicts, strict=True):
        if brief and (not claim.ours or decided.word == NOT_RUN):
            continue
        numbers = re.sub(r"; last ten [^;]*", "", decided.numbers) if brief else decided.numbers
        numbers = " – ".join(part for part in (numbers, claim.why.strip()) if part)
        words = f"{claim.search}: {claim.setting}" if claim.search and claim.setting else claim.text
        rows.append([f"(ours) {words}" if claim.ours else words, f"**{decided.word}**", numbers])
    parts += [table(["claim", "verdict", "found"], rows)] if rows else []
    return "\n\n".join([*parts, *([published.notes.strip()] if published.notes else [])])


def not_run(of: Published, left: Mapping[str, float]) -> str:
    """Write the command of a table without runs, and how long it takes. `left`: hours of jobs."""
    return f"`cfljax sweep experiments/{of.spec}`" + (
        f", {time_of(left[of.job])}" if of.job in left else ""
    )


def _list_cells(each: Section, brief: bool) -> str:
    if each.published.grid:
        return _write_grid(each, brief)
    shown, both = _select_shown(each, brief), bool(each.last_ten) and not brief
    unit = " (%)" if each.published.unit == "%" else ""
    any_published = _has_published(shown)
    columns: list[tuple[str, Callable[[Cell], str]]] = [("", lambda cell: cell.name)]
    columns += (
        [("published" + unit, lambda cell: format_published(cell, each.published))]
        if any_published
        else []
    )
    columns.append(
        (
            "ours, maximum" if both else _name_ours(each) + unit,
            lambda cell: _of(each.measured, cell, each.published),
        )
    )
    columns += [("last ten", lambda cell: _of(each.last_ten, cell, each.published))] if both else []
    columns += [] if brief else [("seeds", lambda cell: each.seeds(cell.name))]
    return table(
        [head for head, _ in columns], [[column(cell) for _, column in columns] for cell in shown]
    )


def _write_grid(each: Section, brief: bool) -> str:
    """Cells named `column: row`, as a table of that shape."""
    shown = _select_shown(each, brief)
    names = [cell.name.partition(": ")[::2] for cell in shown]
    columns, rows = (
        list(dict.fromkeys(c for c, _ in names)),
        list(dict.fromkeys(r for _, r in names)),
    )
    cells = {cell.name: cell for cell in shown}
    filled = [
        [row, *(_format_entry(each, cells.get(f"{column}: {row}"), brief) for column in columns)]
        for row in rows
    ]
    seeds = sorted({len(measured.values) for measured in each.measured.values() if measured.values})
    about = ["maximum, last ten" if each.last_ten and not brief else _name_ours(each)]
    about += ["published in brackets"] if _has_published(shown) else []
    unit = ["in %"] if each.published.unit == "%" else []
    caption = (
        f"{'; '.join([*about, *unit])}; {' or '.join(map(str, seeds)) or 'no'} "
        f"seed{'' if seeds == [1] else 's'}."
    )
    return f"{caption[0].upper()}{caption[1:]}\n\n" + table(["", *columns], filled)


def _select_shown(each: Section, brief: bool) -> list[Cell]:
    """Return the cells of the table that were run or published; those that were run where it is
    brief."""
    run = [name for name, measured in each.measured.items() if measured.values or each.lost[name]]
    cells = [cell for cell in each.published.cells if not cell.aside]
    return [
        cell for cell in cells if cell.name in run or (cell.published is not None and not brief)
    ]


def _name_ours(each: Section) -> str:
    """Return the heading of our numbers; it names the quantity if all accuracies are of the same
    one, without rounds."""
    if any(cell.take.reaches is not None for cell in each.published.cells):
        return "ours"
    kinds = {
        cell.take.summary
        for cell in each.published.cells
        if cell.take.summary.startswith("accuracy")
    }
    return f"ours, {WORDED[kinds.pop()]}" if len(kinds) == 1 and kinds <= WORDED.keys() else "ours"


def _has_published(cells: list[Cell]) -> bool:
    return any(cell.published is not None for cell in cells)


def _format_entry(each: Section, cell: Cell | None, brief: bool) -> str:
    if cell is None:
        return ""
    text = format_ours(each.measured[cell.name], cell, each.published)
    text += f" ({each.lost[cell.name]} diverged or failed)" if each.lost[cell.name] else ""
    if not brief and cell.name in each.last_ten and each.measured[cell.name].values:
        text += f", {format_ours(each.last_ten[cell.name], cell, each.published)}"
    return text if cell.published is None else f"{text} ({format_published(cell, each.published)})"


def _of(numbers: Mapping[str, Measured], cell: Cell, published: Published) -> str:
    return format_ours(numbers[cell.name], cell, published) if cell.name in numbers else "–"


def format_ours(measured: Measured, cell: Cell, published: Published) -> str:
    """Format our number: its mean and deviation over seeds, or the rounds of each."""
    if not measured.values:
        return "not run"
    if cell.take.reaches is not None:
        return ", ".join(
            f"> {measured.rounds[seed]}" if math.isinf(v) else f"{v:.0f}"
            for seed, v in measured.values.items()
        )
    mean, deviation = measured.mean, measured.deviation
    exact = published.unit != "%" and deviation > 0 and abs(mean) < 1000
    digits = (
        min(max(1 - math.floor(math.log10(deviation)), 0), 6)
        if exact
        else 2
        if deviation < 0.1
        else 1
    )

    def written(number: float) -> str:
        if (
            published.unit == "%" or exact
        ):  # of other units as many digits as the deviation has, which has two
            return f"{number:.{digits}f}"
        return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"

    return written(mean) if math.isnan(deviation) else f"{written(mean)} ± {written(deviation)}"


def format_published(cell: Cell, of: Published) -> str:
    """Format the published number with all its digits."""
    if cell.published is None:
        return "–"
    numbers = [number for number in (cell.published, cell.spread) if number is not None]
    return " ± ".join(str(number) if of.unit == "%" else f"{number:g}" for number in numbers)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )
