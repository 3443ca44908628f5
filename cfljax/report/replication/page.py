"""Enters: results folders and files of published numbers. Leaves: a Markdown page with our numbers beside the published ones."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence

from cfljax.report.replication.claims import WORDS, Measured
from cfljax.report.replication.measured import Section, section
from cfljax.report.replication.provenance import provenance, size
from cfljax.report.replication.published import Cell, Page, Published, read_published
from cfljax.results.result import Results

WORDED = {"accuracy_max": "maximum", "accuracy_last": "last round", "accuracy_last10": "mean of the last ten evaluations"}
"""Names of quantities in the headings of tables."""

SPREAD = (
    "± is the standard deviation over seeds. It leaves out what all seeds share: the draw of who holds which data, unless the "
    'spec has `data.seed = "run"`, and the choice of numbers such as the learning rate.'
)


def replication_page(folders: Sequence[str | os.PathLike[str]], published: Sequence[str | os.PathLike[str]]) -> str:
    """The page for these results folders and these files (or folders of files) of published numbers."""
    page, files = read_published(published)
    by_sweep: dict[str, list[Results]] = {}
    for folder in folders:
        results = Results(folder)
        name = results.sweep.get("name") or results.store.folder.absolute().name
        by_sweep.setdefault(str(name), []).append(results)
    return render(page, [section(file, by_sweep.get(file.sweep, [])) for file in files])


def render(page: Page, sections: list[Section]) -> str:
    """The whole page: the verdicts at a glance, then a section per table, under its paper."""
    parts = [f"# {page.title}", page.text.strip(), _overview(sections), SPREAD]
    paper = ""
    for each in sections:
        if each.published.paper != paper:
            paper = each.published.paper
            parts.append(f"## {paper}")
        parts.append(_section(each))
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(sections: list[Section]) -> str:
    """A row for each table: the number of its paper's claims with each verdict. Claims that no paper makes are not counted."""
    rows = []
    for each in sections:
        both = zip(each.published.claims, each.verdicts, strict=True)
        words = [decided.word for claim, decided in both if not claim.ours]
        link = f"[{each.published.title}](#{_anchor(each.published.title)})"
        counts = [str(words.count(word)) if word in words else "" for word in WORDS]
        rows.append([each.published.paper.split(" (")[0], link, size(each), *counts])
    return _table(["", "", "size", *WORDS], rows)


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _section(each: Section) -> str:
    published = each.published
    parts = [f"### {published.title}", provenance(each)]
    if each.units or _any_published(each):
        parts.append(_cells(each))
    rows = []
    for claim, decided in zip(published.claims, each.verdicts, strict=True):
        numbers = " – ".join(part for part in (decided.numbers, claim.why.strip()) if part)
        rows.append([f"(ours) {claim.text}" if claim.ours else claim.text, f"**{decided.word}**", numbers])
    parts += [_table(["claim", "verdict", "found"], rows)] if rows else []
    return "\n\n".join([*parts, *([published.notes.strip()] if published.notes else [])])


def _cells(each: Section) -> str:
    if each.published.grid:
        return _grid(each)
    both = bool(each.last_ten)
    unit = " (%)" if each.published.unit == "%" else ""
    any_published = _any_published(each)
    ours = ["ours, maximum", "last ten"] if both else [_ours_is(each) + unit]
    head = [""] + (["published" + unit] if any_published else []) + ours
    rows = []
    for cell in each.published.cells:
        row = [cell.name] + ([_published(cell, each.published)] if any_published else [])
        row.append(_ours(each.measured[cell.name], cell, each.published))
        if both:
            row.append(_ours(each.last_ten[cell.name], cell, each.published) if cell.name in each.last_ten else "–")
        rows.append([*row, each.seeds(cell.name)])
    return _table([*head, "seeds"], rows)


def _grid(each: Section) -> str:
    """Cells named `column: row`, as a table of that shape."""
    names = [cell.name.partition(": ")[::2] for cell in each.published.cells]
    columns, rows = list(dict.fromkeys(c for c, _ in names)), list(dict.fromkeys(r for _, r in names))
    cells = {cell.name: cell for cell in each.published.cells}
    filled = [[row, *(_in_grid(each, cells.get(f"{column}: {row}")) for column in columns)] for row in rows]
    seeds = sorted({len(measured.values) for measured in each.measured.values() if measured.values})
    about = ["maximum, last ten" if each.last_ten else _ours_is(each), *(["published in brackets"] if _any_published(each) else [])]
    unit = ["in %"] if each.published.unit == "%" else []
    caption = f"{'; '.join([*about, *unit])}; {' or '.join(map(str, seeds)) or 'no'} seed{'' if seeds == [1] else 's'}."
    return f"{caption[0].upper()}{caption[1:]}\n\n" + _table(["", *columns], filled)


def _ours_is(each: Section) -> str:
    """The heading of our numbers; it names the quantity if all accuracies are the same one."""
    kinds = {cell.take.summary for cell in each.published.cells if cell.take.summary.startswith("accuracy")}
    return f"ours, {WORDED[kinds.pop()]}" if len(kinds) == 1 and kinds <= WORDED.keys() else "ours"


def _any_published(each: Section) -> bool:
    return any(cell.published is not None for cell in each.published.cells)


def _in_grid(each: Section, cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = _ours(each.measured[cell.name], cell, each.published)
    text += f" ({each.lost[cell.name]} diverged or failed)" if each.lost[cell.name] else ""
    if cell.name in each.last_ten and each.measured[cell.name].values:
        text += f", {_ours(each.last_ten[cell.name], cell, each.published)}"
    return text if cell.published is None else f"{text} ({_published(cell, each.published)})"


def _ours(measured: Measured, cell: Cell, published: Published) -> str:
    if not measured.values:
        return "not run"
    if cell.take.reaches is not None:
        return ", ".join(f"> {measured.rounds[seed]}" if math.isinf(v) else f"{v:.0f}" for seed, v in measured.values.items())
    mean, deviation = measured.mean, measured.deviation
    digits = 2 if deviation < 0.1 else 1

    def written(number: float) -> str:
        if published.unit == "%":
            return f"{number:.{digits}f}"
        return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"

    return written(mean) if math.isnan(deviation) else f"{written(mean)} ± {written(deviation)}"


def _published(cell: Cell, of: Published) -> str:
    """The published number with all its digits."""
    if cell.published is None:
        return "–"
    numbers = [number for number in (cell.published, cell.spread) if number is not None]
    return " ± ".join(str(number) if of.unit == "%" else f"{number:g}" for number in numbers)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)
