"""How a table's numbers and words are written: in a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import math

from cfljax.report.comparison import Cell, Column

# Characters that LaTeX writes as commands; others that it reserves get a backslash
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "≈": r"$\approx$",
    "†": r"$^\dagger$",
    "–": "--",
    "|": r"\textbar{}",
    '"': "''",
}


def format_cell(column: Column, cell: Cell) -> str:
    """Format a cell: `93.1 ± 0.4`, `93.1 ± 0.4 [92.8, 93.4]` where the column shows intervals, `–`
    if no run has the quantity."""
    if not cell.n:
        return "–"
    text = format_number(column.kind, cell.mean)
    # A deviation of 0 is written of accuracies, not of counts, which are often equal in all runs
    if cell.std is not None and (
        column.kind in ("percent", "score") or (column.kind == "count" and cell.std > 0)
    ):
        text += f" ± {format_number(column.kind, cell.std)}"
    if column.interval and cell.interval is not None:
        text += f" [{', '.join(format_number(column.kind, end) for end in cell.interval)}]"
    if column.reaches and cell.n < cell.total:
        text += f" ({cell.n} of {cell.total})"
    return text


def format_number(kind: str, value: float) -> str:
    """Format a number; `kind` is a Column's."""
    if not math.isfinite(value):
        return "–"
    if kind == "percent":
        return f"{100 * value:.1f}"
    if kind == "bytes":
        return format_size(value)
    if kind == "score" or (kind == "seconds" and abs(value) < 0.995):
        return f"{value:.2f}"
    # The mean of counts need not be a whole number
    if kind == "count" and value == round(value):
        return f"{value:.0f}"
    return f"{value:.1f}"


def format_size(value: float) -> str:
    """Format a number of bytes with decimal prefixes: `1.5 MB`."""
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if abs(value) >= 999.5:
            value /= 1000
            unit = larger
    # At most three digits, as in 1.5 MB, 15.0 MB and 150 MB
    digits = 0 if unit == "B" or abs(value) >= 99.95 else 1
    return f"{value:.{digits}f} {unit}"


def printable(text: str) -> str:
    """Remove control characters from a text, which could change a terminal's state."""
    return "".join(c if c.isprintable() else "�" for c in text)


def escape_markdown(text: str) -> str:
    """Escape the text for Markdown."""
    escaped = "".join(
        "\\" + c if c in "\\`*_{}[]<>#|~" else c for c in " ".join(printable(text).split())
    )
    return escaped.replace("&", "&amp;")


def escape_latex(text: str) -> str:
    """Escape the text for LaTeX."""
    return "".join(
        LATEX.get(c, "\\" + c if c in "&%$#_{}" else c) for c in " ".join(printable(text).split())
    )
