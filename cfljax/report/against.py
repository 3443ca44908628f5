"""Ours against published: from results folders and files of published numbers to one Markdown page."""

from __future__ import annotations

import math
import os
import re
import shlex
import tomllib
from collections.abc import Sequence

from cfljax.options import show
from cfljax.report.claims import WORDS, Measured
from cfljax.report.compare import seconds
from cfljax.report.measure import Section, section
from cfljax.report.published import Cell, Page, Published, read_published
from cfljax.result import Results


def against(folders: Sequence[str | os.PathLike[str]], published: Sequence[str | os.PathLike[str]]) -> str:
    """The page, as Markdown."""
    page, files = read_published(published)
    found: dict[str, list[Results]] = {}
    for folder in folders:
        results = Results(folder)
        name = (results.store.read_plan() or {}).get("name") or results.store.folder.absolute().name
        found.setdefault(str(name), []).append(results)
    return render(page, [section(file, found.get(file.sweep, [])) for file in files])


def render(page: Page, sections: list[Section]) -> str:
    """The whole page: the verdicts at a glance, then a section per table, under its paper."""
    parts = [f"# {page.title}", page.text.strip(), _overview(sections)]
    paper = ""
    for each in sections:
        if each.published.paper != paper:
            paper = each.published.paper
            parts.append(f"## {paper}")
        parts.append(_section(each))
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(sections: list[Section]) -> str:
    """A row per table: how many of its claims came out how."""
    rows = []
    for each in sections:
        words = [decided.word for decided in each.verdicts]
        link = f"[{each.published.title}](#{_anchor(each.published.title)})"
        counts = [str(words.count(word)) if word in words else "" for word in WORDS]
        rows.append([each.published.paper.split(" (")[0], link, _size(each), *counts])
    return _table(["", "", "size", *WORDS], rows)


def _size(each: Section) -> str:
    if not each.units:
        return "not run"
    sizes: dict[str, None] = {}
    for results in each.folders:
        flags = [flag.removeprefix("size=") for flag in _sets(results)[0] if flag.startswith("size=")]
        sizes |= dict.fromkeys(flags or ["full"])
    return ", ".join(sizes)


def _anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _section(each: Section) -> str:
    published = each.published
    parts = [f"### {published.title}", _how(each)]
    if each.units or _any_published(each):
        parts.append(_cells(each))
    if published.claims:
        rows = [
            [claim.text, f"**{decided.word}**", " – ".join(t for t in (decided.found, claim.why.strip()) if t)]
            for claim, decided in zip(published.claims, each.verdicts, strict=True)
        ]
        parts.append(_table(["claim", "verdict", "found"], rows))
    return "\n\n".join([*parts, *([published.notes.strip()] if published.notes else [])])


def _how(each: Section) -> str:
    """The command, what it ran on, and for how long."""
    spec = each.published.spec
    if not each.units:
        return f"Not run: {_command(spec, ['size=small'])}" if spec else "Not run."
    lines: list[str] = []
    for results in each.folders:
        sets, small = _sets(results)
        if spec and (command := _command(spec, sets)) not in lines:
            lines.append(command)
        if small:
            lines.append(f"{small}.")
    spent = sum(s for unit in each.units if math.isfinite(s := seconds(unit)))
    devices = ", ".join(sorted({str(unit.record.get("device", "unknown")).split(",")[0] for unit in each.units}))
    runs = f"{len(each.units)} run{'s' if len(each.units) > 1 else ''}"
    lines.append(f"{runs}, {_time(spent)} of computing on {devices}, {_time(spent / len(each.units))} a run.")
    return "  \n".join(lines)


def _command(spec: str, sets: list[str]) -> str:
    if spec.endswith(".py"):
        return f"`CFLJAX_DATA=DATA python experiments/{spec} --out DIR`"
    flags = "".join(f" --set {shlex.quote(flag)}" for flag in sets)
    return f"`CFLJAX_DATA=DATA python -m cfljax.sweep experiments/{spec}{flags}`"


def _sets(results: Results) -> tuple[list[str], str]:
    """The flags that were laid over the spec, and what its size changes."""
    text = results.store.read_spec() or ""
    flags = list(dict.fromkeys(re.findall(r"^# --set (.*)$", text, re.MULTILINE)))
    try:
        sizes = tomllib.loads(text).get("size", {})
    except tomllib.TOMLDecodeError:
        sizes = {}
    chosen = [name for flag in flags if flag.startswith("size=") and (name := flag.removeprefix("size=")) in sizes]
    said = [f"Size {name}: " + "; ".join(f"`{k} = {show(v)}`" for k, v in sizes[name].items()) for name in chosen]
    return flags, "; ".join(said)


def _cells(each: Section) -> str:
    if each.published.grid:
        return _grid(each)
    both = bool(each.last_ten)
    unit = " (%)" if each.published.unit == "%" else ""
    any_published = _any_published(each)
    head = [""] + (["published" + unit] if any_published else []) + (["ours, maximum", "last ten"] if both else ["ours" + unit])
    rows = []
    for cell in each.published.cells:
        ours = each.measured[cell.name]
        row = [cell.name] + ([_number(cell.published, cell, each.published, cell.spread)] if any_published else [])
        row.append(_ours(ours, cell, each.published))
        if both:
            row.append(_ours(each.last_ten[cell.name], cell, each.published) if cell.name in each.last_ten else "–")
        rows.append([*row, each.seeds(cell.name)])
    return _table([*head, "seeds"], rows)


def _grid(each: Section) -> str:
    """Cells called `column: row`, as a table of that shape."""
    names = [cell.name.partition(": ")[::2] for cell in each.published.cells]
    columns, rows = list(dict.fromkeys(c for c, _ in names)), list(dict.fromkeys(r for _, r in names))
    there = {cell.name: cell for cell in each.published.cells}
    filled = [[row, *(_in_grid(each, there.get(f"{column}: {row}")) for column in columns)] for row in rows]
    seeds = sorted({len(measured.values) for measured in each.measured.values() if measured.values})
    about = ["maximum, last ten" if each.last_ten else "ours", *(["published in brackets"] if _any_published(each) else [])]
    unit = ["in %"] if each.published.unit == "%" else []
    said = f"{'; '.join([*about, *unit])}; {' or '.join(map(str, seeds)) or 'no'} seed{'' if seeds == [1] else 's'}."
    return f"{said[0].upper()}{said[1:]}\n\n" + _table(["", *columns], filled)


def _any_published(each: Section) -> bool:
    return any(cell.published is not None for cell in each.published.cells)


def _in_grid(each: Section, cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = _ours(each.measured[cell.name], cell, each.published)
    text += f" ({each.lost[cell.name]} diverged or failed)" if each.lost[cell.name] else ""
    if cell.name in each.last_ten and each.measured[cell.name].values:
        text += f", {_ours(each.last_ten[cell.name], cell, each.published)}"
    return text if cell.published is None else f"{text} ({_number(cell.published, cell, each.published, cell.spread)})"


def _ours(measured: Measured, cell: Cell, published: Published) -> str:
    if not measured.values:
        return "not run"
    if cell.take.reaches is not None:
        return ", ".join(f"> {measured.rounds[seed]}" if math.isinf(v) else f"{v:.0f}" for seed, v in measured.values.items())
    deviation = measured.deviation
    return _number(measured.mean, cell, published, None if math.isnan(deviation) else deviation)


def _number(value: float | None, cell: Cell, published: Published, spread: float | None = None) -> str:
    if value is None:
        return "–"
    whole = cell.take.reaches is not None

    def write(number: float) -> str:
        if whole:
            return f"{number:g}"
        return f"{number:.2f}" if published.unit == "%" and spread is not None and spread < 0.1 else _written(number, published)

    return write(value) if spread is None else f"{write(value)} ± {write(spread)}"


def _written(number: float, published: Published) -> str:
    if published.unit == "%":
        return f"{number:.1f}"
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def _time(spent: float) -> str:
    if spent < 60:
        return f"{spent:.0f} s"
    return f"{spent / 60:.0f} min" if spent < 2 * 3600 else f"{spent / 3600:.1f} h"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)
