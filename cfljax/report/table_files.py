"""The table as the files of a report: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cfljax.report.cells import escape_latex, escape_markdown, format_cell
from cfljax.report.columns import columns_of
from cfljax.report.comparison import Cell, Column, Row
from cfljax.report.configurations import Configuration
from cfljax.report.notes import list_notes
from cfljax.report.over_settings import MethodOverSettings, compare_over_settings
from cfljax.results.frames import format_value, no_formula
from cfljax.store.records import STATUSES

if TYPE_CHECKING:
    import pandas


def to_markdown(table: Sequence[Row]) -> str:
    """Write the table in GitHub's Markdown; the best in bold."""
    if not table:
        return "No finished runs.\n"

    def cell(column: Column, value: Cell) -> str:
        text = format_cell(column, value)
        if value.best:
            return f"**{text}**"
        return text + (" ≈" if value.tied else "")

    head, body, texts = _make_grid(table, escape_markdown, cell)
    lines = [
        f"| {' | '.join(head)} |",
        f"|{'|'.join(' --- ' if i < texts else ' ---: ' for i in range(len(head)))}|",
    ]
    lines += [f"| {' | '.join(line)} |" for line in body]
    return (
        "\n".join([*lines, "", *(f"{note}.  " for note in list_notes(table, "**bold**:", "≈"))])
        + "\n"
    )


def to_latex(table: Sequence[Row]) -> str:
    r"""Write the table as a booktabs tabular, to be used with \input; the best in bold."""
    if not table:
        return "% no finished runs\n"

    def cell(column: Column, value: Cell) -> str:
        text = format_cell(column, value).replace(" ± ", r" $\pm$ ").replace("–", "--")
        if value.best:
            return rf"\textbf{{{text}}}"
        return text + (r"\textsuperscript{$\approx$}" if value.tied else "")

    head, body, texts = _make_grid(table, escape_latex, cell)
    kinds = "l" * texts + "r" * (len(head) - texts)
    said = [escape_latex(note) for note in list_notes(table, "bold:", "≈")]
    lines = [
        r"% needs \usepackage{booktabs}",
        *(f"% {note}" for note in said),
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
    ]
    lines += [" & ".join(head) + r" \\", r"\midrule"]
    block = table[0].configuration.block
    for row, line in zip(table, body, strict=True):
        if row.configuration.block != block:
            lines.append(r"\midrule")
            block = row.configuration.block
        lines.append(" & ".join(line) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _make_grid(
    table: Sequence[Row], escape: Callable[[str], str], cell: Callable[[Column, Cell], str]
) -> tuple[list[str], list[list[str]], int]:
    """Return (headings, lines, number of columns of text before the columns of numbers), with a
    column for each option that varies."""
    columns = columns_of(table)
    options = option_names(row.configuration for row in table)
    folders = ["folder"] if any(row.configuration.folder for row in table) else []
    head = [
        escape(word)
        for word in [*folders, "method", *options, "runs", *(c.heading for c in columns)]
    ]
    body = []
    for row in table:
        each = row.configuration
        chosen = dict(each.options)
        words = [
            *([each.folder] if folders else []),
            each.display_name,
            *(chosen.get(o, "") for o in options),
            each.runs,
        ]
        body.append([*map(escape, words), *(cell(c, row.cells[c.key]) for c in columns)])
    return head, body, len(folders) + 1 + len(options)


def option_names(configurations: Iterable[Configuration]) -> list[str]:
    """List the options that vary, in the order of the specs."""
    return list(dict.fromkeys(name for each in configurations for name, _ in each.options))


# What a frame has of a column: of all, and of those that are compared with the best as well
NUMBERS = ("mean", "std", "n", "low", "high")
COMPARED_NUMBERS = (
    *("best", "difference", "difference_low", "difference_high", "effect", "p", "p_raw"),
    "confidence",
)
# What it has of a method if several settings are compared, the same in all rows of the method
OVER_SETTINGS = ("iqm", "iqm_low", "iqm_high", "better_here", "better_anywhere", "equal_anywhere")


def to_frame(table: Sequence[Row]) -> pandas.DataFrame:
    """Return a row per configuration with unrounded numbers (accuracies as fractions): mean, std,
    n, the 95 % interval, best, and against the best the mean difference with its interval, the
    effect, the corrected p and the raw one, and what the interval holds; then OVER_SETTINGS."""
    import pandas as pd

    columns = columns_of(table)
    options = option_names(row.configuration for row in table)
    lines: list[dict[str, str | float | None]] = []
    over = _list_over_settings(table)
    for row, of_method in zip(table, over, strict=True):
        each = row.configuration
        values = _list_option_values(each)
        line: dict[str, str | float | None] = {"method": each.method, "label": each.label}
        line |= {option: values.get(option) for option in options}
        line |= {status: len(each.by_status(status)) for status in STATUSES}
        for column in columns:
            numbers = _list_numbers(column, row.cells[column.key])
            line |= {f"{column.key}_{name}": number for name, number in numbers.items()}
        lines.append({**line, **of_method})
    frame = pd.DataFrame(lines)
    # A column in which all numbers are missing has objects
    counts = tuple(f"_{name}" for name in ("n", "best"))
    heads = [f"{column.key}_{name}" for column in columns for name in _name_numbers(column)]
    heads += over[0] if over else []
    return frame.astype({name: float for name in heads if not name.endswith(counts)})


def _list_over_settings(table: Sequence[Row]) -> list[dict[str, float | None]]:
    """List what a frame has of the method of each row over the settings; empty dicts if it has one
    setting."""
    over = compare_over_settings(table)
    if over is None:
        return [{} for _ in table]
    return [
        dict.fromkeys(OVER_SETTINGS) if method is None else _describe_over_settings(method)
        for method in over.rows
    ]


def _describe_over_settings(method: MethodOverSettings) -> dict[str, float | None]:
    low, high = method.typical.interval or (None, None)
    here = None if method.here is None else method.better_here
    better, equal, _ = method.anywhere or (None,) * 3
    numbers = (method.typical.mean, low, high, here, better, equal)
    return dict(zip(OVER_SETTINGS, numbers, strict=True))


def _list_option_values(configuration: Configuration) -> dict[str, str | float | None]:
    """Map the options of a configuration to their values; lists and tables are texts, as in
    `to_pandas`."""
    values = configuration.units[0].record["varies"].values()
    names = (name for name, _ in configuration.options)
    return {name: format_value(value) for name, value in zip(names, values, strict=True)}


def to_csv(table: Sequence[Row]) -> str:
    """Write the numbers of `to_frame` with nine digits, and the folder of each row before them."""
    columns = columns_of(table)
    options = option_names(row.configuration for row in table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"{column.key}_{name}" for column in columns for name in _name_numbers(column)]
    over = _list_over_settings(table)
    heads += over[0] if over else []
    writer.writerow(["folder", "method", "label", *options, *STATUSES, *heads])
    for row, of_method in zip(table, over, strict=True):
        each = row.configuration
        chosen = dict(each.options)
        numbers = [
            _write_number(name, number)
            for column in columns
            for name, number in _list_numbers(column, row.cells[column.key]).items()
        ]
        numbers += [_write_number(name, number) for name, number in of_method.items()]
        writer.writerow(
            [
                *map(no_formula, (each.folder, each.method, each.label)),
                *(no_formula(str(chosen.get(option, ""))) for option in options),
                *(len(each.by_status(status)) for status in STATUSES),
                *numbers,
            ]
        )
    return out.getvalue()


def _name_numbers(column: Column) -> tuple[str, ...]:
    """Return what a frame has of a column."""
    return (*NUMBERS, *COMPARED_NUMBERS) if column.better else NUMBERS


def _list_numbers(column: Column, cell: Cell) -> dict[str, float | None]:
    """Map what a frame has of a column to the numbers of a cell; None for one that is missing."""
    low, high = cell.interval or (None, None)
    far = (None,) * 4 if cell.behind is None else cell.behind[:4]
    confidence = None if cell.behind is None else cell.behind.confidence
    mean = cell.mean if cell.n else None
    numbers = (
        *(mean, cell.std, cell.n, low, high, cell.best),
        *(*far, cell.p, cell.p_raw, confidence),
    )
    # Of a column that has no best, the last ones are left out
    return dict(zip(_name_numbers(column), numbers, strict=False))


def _write_number(name: str, value: float | None) -> str:
    """Write a number with nine digits, p values with six, and "best" as 0 or 1."""
    if value is None:
        return ""
    if name in ("n", "best"):
        return str(int(value))
    return f"{value:.{6 if name in ('p', 'p_raw') else 9}g}"
