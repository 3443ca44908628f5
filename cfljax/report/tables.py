"""The table in a terminal: at the end of a sweep, and of `cfljax report`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cfljax.report.cells import format_cell, printable
from cfljax.report.columns import columns_of
from cfljax.report.comparison import Cell, Column, Row, rows
from cfljax.report.notes import list_advice, list_notes
from cfljax.report.over_settings import compare_over_settings, describe, terminal
from cfljax.report.report_data import collect
from cfljax.results.result import Results
from cfljax.store.quantities import NEW_CLIENTS, new_steps


def write_comparison(results: Results) -> str:
    """Write the table that a sweep prints at its end."""
    table = rows(collect([results]).configurations, lambda column: "terminal" in column.shown)
    # Of the accuracies of new clients after several numbers of steps, the terminal shows the first
    by_steps = [
        c.key for c in columns_of(table) if c.key.startswith(NEW_CLIENTS) and new_steps(c.key) >= 0
    ]
    later = by_steps[1:]
    return to_terminal(
        [
            row._replace(cells={key: cell for key, cell in row.cells.items() if key not in later})
            for row in table
        ]
    )


def to_terminal(table: Sequence[Row], width: int | None = None, bold: bool = False) -> str:
    """Format the table in aligned columns. The best has a star (and is bold), cells that do not
    differ significantly from it a ≈. `width`: the terminal's; the least important columns are left
    out if the table is wider."""
    if not table:
        return "no finished runs"
    columns = columns_of(table)
    left_out = []
    text = _align_rows(table, columns)
    for least in sorted((c for c in columns if c.first_to_go), key=lambda c: c.first_to_go):
        if width is None or max(map(len, text)) <= width:
            break
        left_out.append(least.heading)
        columns.remove(least)
        text = _align_rows(table, columns)
    if bold:
        text = [_embolden(line) for line in text]
    if any(
        row.configuration.lost or any(cell.best or cell.tied for cell in row.cells.values())
        for row in table
    ):
        text += ["", *list_notes(table, "*", "≈")[1:]]
    if (over := compare_over_settings(table)) is not None and over.tested:
        text += ["", *align(terminal(over)), f"{describe(over)}."]
    text += write_advice(list_advice(table))
    if left_out:
        text.append(f"left out for lack of space: {', '.join(left_out)}")
    return "\n".join(text)


def write_advice(lines: Sequence[str]) -> list[str]:
    """Write what is worth a look, for a terminal; [] for nothing."""
    return ["", "worth a look:", *(f"- {printable(line)}" for line in lines)] if lines else []


def _align_rows(table: Sequence[Row], columns: list[Column]) -> list[str]:
    """Format the rows in aligned columns, each block under its heading."""
    folders = any(row.configuration.folder for row in table)
    # A heading ends with a space, as its cells end with a mark or a space
    head = [
        "",
        *(["folder"] if folders else []),
        "runs",
        *(f"{c.heading} " for c in columns),
    ]
    grid = [head]
    titles = {}
    block = None
    for row in table:
        each = row.configuration
        if each.block != block and each.heading:
            titles[len(grid)] = printable(each.heading)
        block = each.block
        marked = ((c, row.cells[c.key]) for c in columns)
        cells = [format_cell(c, cell) + _choose_mark(cell, "*", "≈", " ") for c, cell in marked]
        grid.append(
            [
                printable(each.short),
                *([printable(each.folder)] if folders else []),
                each.runs,
                *cells,
            ]
        )
    lines = align(grid, lefts=2 if folders else 1)
    for at in sorted(titles, reverse=True):
        lines[at:at] = ["", titles[at]] if at > 1 else [titles[at]]
    return lines


def _choose_mark(cell: Cell, best: str, tied: str, other: str = "") -> str:
    """Return the mark of the best, of a cell that does not differ from it, or of another one."""
    if cell.best:
        return best
    return tied if cell.tied else other


def _embolden(line: str) -> str:
    """Make the numbers with a star bold, in a terminal."""
    marked = r"[^\s±]+(?: [kMGT]?B)?(?: ± [^\s*]+)?(?: \[[^\]]*\])?(?: \([^)]*\))?\*"
    return re.sub(marked, lambda m: f"\033[1m{m.group()}\033[0m", line)


def align(grid: Sequence[Sequence[str]], lefts: int = 1) -> list[str]:
    """Format the lines of a grid in aligned columns: the first `lefts` columns flush left, the
    others flush right."""
    widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
    lines = []
    for line in grid:
        cells = [
            cell.ljust(w) if i < lefts else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
