"""The table as the files of a report: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence

from cfljax.report.cells import escape_latex, escape_markdown, format_cell
from cfljax.report.columns import columns_of
from cfljax.report.comparison import Cell, Column, Row
from cfljax.report.configurations import Configuration
from cfljax.report.notes import list_notes
from cfljax.results.frames import no_formula


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


# What the CSV has of a column: of all, and of those that are compared with the best as well
NUMBERS = ("mean", "std", "n", "low", "high")
COMPARED_NUMBERS = ("best", "difference", "difference_low", "difference_high", "effect", "p")


def to_csv(table: Sequence[Row]) -> str:
    """Write a row per configuration with unrounded numbers (accuracies as fractions): mean, std, n,
    the 95 % interval, best, and against the best the mean difference with its interval, the effect
    and the corrected p."""
    columns = columns_of(table)
    options = option_names(row.configuration for row in table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"{column.key}_{name}" for column in columns for name in _name_numbers(column)]
    writer.writerow(["folder", "method", "label", *options, "done", "diverged", "failed", *heads])
    for row in table:
        each = row.configuration
        chosen = dict(each.options)
        counts = [len(each.by_status(status)) for status in ("done", "diverged", "failed")]
        numbers = [
            number
            for column in columns
            for number in _list_numbers(row.cells[column.key])[: len(_name_numbers(column))]
        ]
        writer.writerow(
            [
                *map(no_formula, (each.folder, each.method, each.label)),
                *(no_formula(str(chosen.get(option, ""))) for option in options),
                *counts,
                *numbers,
            ]
        )
    return out.getvalue()


def _name_numbers(column: Column) -> tuple[str, ...]:
    """Return what the CSV has of a column."""
    return (*NUMBERS, *COMPARED_NUMBERS) if column.better else NUMBERS


def _list_numbers(cell: Cell) -> list[str]:
    """List the numbers of a cell in the order of NUMBERS and COMPARED_NUMBERS; "" for a number that
    is missing."""

    def text(value: float | None, digits: int = 9) -> str:
        return "" if value is None else f"{value:.{digits}g}"

    low, high = cell.interval or (None, None)
    far = (None,) * 4 if cell.behind is None else cell.behind[:4]
    mean = cell.mean if cell.n else None
    return [
        text(mean),
        text(cell.std),
        str(cell.n),
        text(low),
        text(high),
        str(int(cell.best)),
        *map(text, far),
        text(cell.p, 6),
    ]
