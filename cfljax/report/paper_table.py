r"""Enters: the rows of the comparison table. Leaves: a LaTeX table that fits into a column of a
paper, with its notes below."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cfljax.report.cells import escape_latex, format_number
from cfljax.report.columns import columns_of
from cfljax.report.comparison import Cell, Column, Row, headline
from cfljax.report.notes import draws_data, note_columns, note_left_out, note_marks

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

# The width of a column in inches
COLUMN_WIDTH = 3.3
POINTS_PER_INCH = 72.27
# In points: the letters of the table and of its notes, and the space on each side of a column
LETTERS = 8.0
NOTE_LETTERS = 7.0
SPACE = 3.0
# The dagger stands in the space behind its number, so that numbers stay aligned; behind the last
# column this much is kept free for it, in points
DAGGER = r"\rlap{$^\dagger$}"
DAGGER_WIDTH = 4.0
# Computer Modern's own letters of 8 points are wider than its letters of 10 points made smaller,
# which can be measured here; Times, which most templates have, is narrower
WIDER = {False: 1.063, True: 1.19}
# The largest share of the width that names have before they are broken into lines
NAMES_SHARE = 0.3
# The columns beside the accuracy, unless columns were asked for; the least important last
USUAL = (
    *("accuracy_worst10", "rmse", "ari", "bytes_to_fedavg", "round_to_fedavg", "seconds_to_fedavg"),
    *("bytes_to_target", "round_to_target", "seconds_to_target"),
)
# If there is no FedAvg and no target that costs could be counted to
WHOLE_COSTS = ("bytes", "seconds")
BYTES_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


class Layout(NamedTuple):
    """A way to write the table."""

    columns: list[Column]
    # Whether columns beside the accuracy have the deviation, too
    deviations: bool


class Text(NamedTuple):
    """The lines of a cell, and how they are written."""

    lines: list[str]
    bold: bool = False
    dagger: bool = False

    def measure(self) -> float:
        """Return the width in points."""
        return max(_measure(line, self.bold) for line in self.lines)

    def write(self, side: str) -> str:
        """Write the cell in LaTeX; several lines are flush with this side (l or r)."""
        lines = [escape_latex(line).replace(r" $\pm$ ", r"\,$\pm$\,") for line in self.lines]
        text = r"\\".join(lines)
        if len(lines) > 1:
            text = rf"\shortstack[{side}]{{{text}}}"
        return (rf"\textbf{{{text}}}" if self.bold else text) + (DAGGER if self.dagger else "")


def write_table(
    table: Sequence[Row], inches: float = COLUMN_WIDTH, asked: bool = False
) -> tuple[str, list[str]]:
    r"""Write the table, to be used with \input inside a `table` environment, and list the columns
    that have no room. Deviations of other columns than the accuracy go first, then the last
    columns. `asked`: the columns were asked for, so that it has all of them if there is room."""
    if not table:
        return "% no finished runs\n", []
    columns = columns_of(table) if asked else _choose_columns(table)
    layouts = [Layout(columns, True)]
    layouts += [Layout(columns[:n], False) for n in range(len(columns), 0, -1)]
    grids = [_make_grid(table, layout, inches) for layout in layouts]
    fitting = (i for i, grid in enumerate(grids) if measure_grid(grid) <= inches * POINTS_PER_INCH)
    chosen = next(fitting, len(grids) - 1)
    shown = layouts[chosen].columns
    text = _write_grid(table, grids[chosen], shown, inches)
    return text, [column.heading for column in columns[len(shown) :]]


def _choose_columns(table: Sequence[Row]) -> list[Column]:
    """Choose the accuracy, and what the runs have of the usual columns beside it."""
    first = headline(table)
    found = [] if first is None else [first]
    columns = [column for column in columns_of(table) if _has_numbers(table, column)]
    score = "accuracy" if first is None else first.curve
    usual = [name.replace("accuracy", score) for name in USUAL]
    found += [column for name in usual for column in columns if _is_usual(column, name)]
    if not any(column.reaches for column in found):
        found += [column for column in columns if column.key in WHOLE_COSTS]
    return found


def _is_usual(column: Column, name: str) -> bool:
    """Return whether the column has this name, or is one of the windows of a curve of this
    name."""
    return column.key == name or (column.window != "" and column.key.startswith(f"{name}_"))


def _has_numbers(table: Sequence[Row], column: Column) -> bool:
    """Return whether a column says something: methods without clusters have an ARI of zero."""
    cells = [row.cells[column.key] for row in table]
    return any(cell.n and cell.mean for cell in cells)


def _make_grid(table: Sequence[Row], layout: Layout, inches: float) -> list[list[Text]]:
    """Make the cells of the heading and of each row."""
    names = inches * POINTS_PER_INCH * NAMES_SHARE
    heads = [Text(_break_head(_head(table, column))) for column in layout.columns]
    grid = [[Text(["method"]), *heads]]
    for row in table:
        each = row.configuration
        name = f"{each.folder}: {each.title}" if each.folder else each.title
        cells = [
            _make_cell(table, layout, column, row.cells[column.key]) for column in layout.columns
        ]
        grid.append([Text(_break(name, names)), *cells])
    return grid


def measure_grid(grid: Sequence[Sequence[Text]]) -> float:
    """Return the width of a table in points."""
    columns = zip(*grid, strict=True)
    widths = [max(cell.measure() for cell in column) for column in columns]
    return sum(widths) + 2 * SPACE * (len(widths) - 1) + DAGGER_WIDTH


def _measure(text: str, bold: bool = False) -> float:
    """Return the width of a text in points. A letter that the font lacks counts as one em."""
    font = _read_font()
    widths = [_measure_letter(font, letter) for letter in text]
    return WIDER[bold] * LETTERS * sum(widths)


def _measure_letter(font: FT2Font, letter: str) -> float:
    """Return the width of a letter in em."""
    from matplotlib.ft2font import LoadFlags

    if not font.get_char_index(ord(letter)):
        return 1.0
    glyph = font.load_char(ord(letter), flags=LoadFlags.NO_SCALE)
    return glyph.horiAdvance / font.units_per_EM


@functools.cache
def _read_font() -> FT2Font:
    """Read the font of LaTeX's documents, as matplotlib has it."""
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    return FT2Font(str(Path(get_data_path()) / "fonts" / "ttf" / "cmr10.ttf"))


def _break(text: str, width: float) -> list[str]:
    """Break a text between words into lines of at most this width in points; a longer word has a
    line of its own."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _measure(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or [""]


def _break_head(head: str) -> list[str]:
    """Break a heading into lines that are as long as its longest word."""
    return _break(head, max(map(_measure, head.split())))


def _head(table: Sequence[Row], column: Column) -> str:
    """Return the heading of a column, with its unit."""
    if column.sentence:
        return f"{column.curve} (%)"
    units = {"percent": "%", "bytes": _choose_unit(table, column)[0], "seconds": "s"}
    return f"{column.heading} ({units[column.kind]})" if column.kind in units else column.heading


def _choose_unit(table: Sequence[Row], column: Column) -> tuple[str, float]:
    """Choose the largest unit of bytes in which no row has less than one."""
    means = [row.cells[column.key].mean for row in table]
    least = min((mean for mean in means if math.isfinite(mean) and mean > 0), default=1.0)
    return next((each for each in BYTES_UNITS if least >= each[1]), BYTES_UNITS[-1])


def _make_cell(table: Sequence[Row], layout: Layout, column: Column, cell: Cell) -> Text:
    """Make a cell; the unit stands in the heading."""
    if not cell.n:
        return Text(["–"])
    if column.kind == "bytes":
        value = cell.mean / _choose_unit(table, column)[1]
        text = f"{value:.0f}" if value >= 99.95 or not value else f"{value:.1f}"
    else:
        text = format_number(column.kind, cell.mean)
    if cell.std is not None and (
        column.sentence or (layout.deviations and column.kind in ("percent", "score"))
    ):
        text += f" ± {format_number(column.kind, cell.std)}"
    if column.reaches and cell.n < cell.total:
        text += f" ({cell.n}/{cell.total})"
    return Text([text], cell.best, cell.tied)


def _write_grid(
    table: Sequence[Row], grid: list[list[Text]], columns: Sequence[Column], inches: float
) -> str:
    """Write the table with its notes, in a box of the column's width."""
    kinds = rf"@{{}}l{'r' * len(columns)}@{{\hspace{{{DAGGER_WIDTH:g}pt}}}}"
    lines = [
        r"% needs \usepackage{booktabs}; for \begin{table} \caption{...} \input{paper} \end{table}",
        rf"\begin{{minipage}}{{{inches:g}in}}",
        r"\centering",
        _set_letters(LETTERS),
        rf"\setlength{{\tabcolsep}}{{{SPACE:g}pt}}%",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
    ]
    sides = "l" + "r" * len(columns)
    body = [
        " & ".join(cell.write(side) for cell, side in zip(line, sides, strict=True)) + r" \\"
        for line in grid
    ]
    lines.append(body[0])
    block = None
    for row, line in zip(table, body[1:], strict=True):
        each = row.configuration
        if each.block != block:
            lines.append(r"\midrule")
            block = each.block
            if each.heading:
                title = Text(_break(each.heading, inches * POINTS_PER_INCH - DAGGER_WIDTH))
                lines.append(
                    rf"\multicolumn{{{len(sides)}}}{{@{{}}l@{{}}}}{{{title.write('l')}}} \\"
                )
        lines.append(line)
    shown = [row._replace(cells={c.key: row.cells[c.key] for c in columns}) for row in table]
    notes = ". ".join(note[:1].upper() + note[1:] for note in _list_notes(shown, columns))
    lines += [
        r"\bottomrule",
        r"\end{tabular}\par\vspace{3pt}",
        rf"\raggedright{_set_letters(NOTE_LETTERS)}",
        f"{escape_latex(notes)}.",
        r"\end{minipage}",
    ]
    return "\n".join(lines) + "\n"


def _set_letters(points: float) -> str:
    return rf"\fontsize{{{points:g}}}{{{1.2 * points:g}}}\selectfont"


def _list_notes(table: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """List the sentences below the table: what its numbers and marks mean."""
    said = [*note_marks(table, "bold:", "†:"), *note_left_out(table), *note_columns(table)]
    if any(column.kind == "bytes" for column in columns):
        said.append("bytes: sent and received by all clients together")
    first = headline(table)
    counts = set() if first is None else {n for row in table if (n := row.cells[first.key].n)}
    if first is None or not counts:
        return said
    about = f"{first.curve}: {first.sentence}"
    if max(counts) == 1:
        return [about, *said]
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts))
    about += f", mean ± sample standard deviation of {seeds} seeds"
    draws = {draws_data(row) for row in table}
    if len(draws) == 1:
        about += ", each with a partition of its own" if draws.pop() else ", on one partition"
    return [about, *said]
