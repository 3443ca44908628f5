"""Enters: the rows of the comparison table. Leaves: its text for a terminal, as Markdown, LaTeX or
CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence

from cfljax.errors import SpecError, suggest
from cfljax.report.comparison import (
    COLUMNS,
    COLUMNS_ON_REQUEST,
    DRIFT_COLUMNS,
    NOT_BY_ALL,
    TARGET_COLUMNS,
    TRAIN_AND_TEST_CLIENTS,
    Cell,
    Column,
    Row,
    add_new_client_columns,
    headline,
    rows,
)
from cfljax.report.configurations import Configuration, collect
from cfljax.results.frames import NEW_CLIENTS, new_steps, no_formula
from cfljax.results.result import Results
from cfljax.results.statistics import BOOTSTRAP, FEWEST, LEVEL

TERMINAL_EXTRAS = (
    *TRAIN_AND_TEST_CLIENTS,
    *DRIFT_COLUMNS,
    "round_to_target",
    "clock_s",
    "clock_to_target",
    "seconds",
)
"""Columns of the table at the end of a sweep beside its window's, without NMI."""
FIRST_TO_GO = (
    "bytes_to_target",
    "cost",
    "NMI",
    "bytes",
    "seconds",
    "accuracy_max",
    "clusters",
    "ari_new",
)
"""The columns, by key or heading, that are left out first, in this order, if a terminal is
narrow."""
TEST_IN_WORDS = (
    f"two-sided paired t-test over shared seeds, Holm-corrected within the column, {LEVEL:.0%} "
    "level"
)


def comparison(results: Results) -> str:
    """Write the table that a sweep prints at its end."""
    table = rows(
        collect([results]).configurations,
        [c for c in COLUMNS if c.key in TERMINAL_EXTRAS or (c.window and c.heading != "NMI")],
    )
    # Of the accuracies of new clients after several numbers of steps, the terminal shows the first
    by_steps = [
        c.key for c in columns_of(table) if c.key.startswith(NEW_CLIENTS) and new_steps(c.key) >= 0
    ]
    later = by_steps[1:]
    return terminal(
        [
            row._replace(cells={key: cell for key, cell in row.cells.items() if key not in later})
            for row in table
        ]
    )


def columns_of(table: Sequence[Row]) -> list[Column]:
    """Return the columns that the table has."""
    first = headline(table)
    keys = table[0].cells if table else {}
    every = (
        c for c in add_new_client_columns((*COLUMNS, *COLUMNS_ON_REQUEST), keys) if c.key in keys
    )
    return [first if first is not None and c.key == first.key else c for c in every]


def select_columns(table: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Select columns by their headings, the first words of their headings, or their keys."""
    spellings = {
        column.key: (column.key, column.heading, column.heading.split()[0])
        for column in columns_of(table)
    }
    known = {name for each in spellings.values() for name in each}
    if wrong := next((name for name in names if name not in known), ""):
        near = suggest(
            wrong, [column.heading for column in (*columns_of(table), *COLUMNS_ON_REQUEST)]
        )
        raise SpecError(f"--columns {wrong}: there is no such column{near}")
    return [
        row._replace(
            cells={key: row.cells[key] for key, own in spellings.items() if {*names} & {*own}}
        )
        for row in table
    ]


def list_notes(table: Sequence[Row], best: str, tied: str) -> list[str]:
    """List the sentences that explain a table, without those about marks and columns that it does
    not have. `best` and `tied` are the marks."""
    said = ["mean ± standard deviation over the seeds of completed runs; accuracies in per cent"]
    said += _note_intervals(table) + _note_draws(table) + _note_marks(table, best, tied)
    if lost := sum(bool(row.configuration.lost) for row in table):
        said.append(f"not compared: {lost} of {len(table)} rows, of which not all runs ended well")
    return said + _note_columns(table)


def _note_marks(table: Sequence[Row], best: str, tied: str) -> list[str]:
    """Explain the marks of the best cells and of those that do not differ from them."""
    cells = [cell for row in table for cell in row.cells.values()]
    if not any(cell.best for cell in cells):
        return []
    blocks = len({row.configuration.block for row in table}) > 1
    said = [f"{best} best of the column{' on the same data' if blocks else ''}"]
    if any(cell.tied for cell in cells):
        said.append(f"{tied} not significantly different from the best ({TEST_IN_WORDS})")
    elif any(cell.p is not None for cell in cells):
        said.append(f"all others differ significantly from the best ({TEST_IN_WORDS})")
    marked = [c.key for c in columns_of(table) if c.better and c.key not in NOT_BY_ALL]
    compared = [row.cells[key] for row in table if not row.configuration.lost for key in marked]
    if any(cell.p is None and not cell.best and cell.n for cell in compared):
        said.append(f"not tested: fewer than {FEWEST} seeds in common with the best")
    return said


def _note_columns(table: Sequence[Row]) -> list[str]:
    """Explain the columns whose headings do not say all."""

    def list_cells(keys: Iterable[str]) -> list[Cell]:
        return [row.cells[key] for row in table for key in keys if key in row.cells]

    def has_numbers(*keys: str) -> bool:
        return any(cell.n for cell in list_cells(keys))

    def has_some(*keys: str) -> bool:
        return any(0 < cell.n < cell.total for cell in list_cells(keys))

    said = []
    if has_numbers(*TRAIN_AND_TEST_CLIENTS):
        said.append("test clients never train; they count in all other accuracies, too")
    if has_numbers("accuracy_finetuned"):
        said.append(
            "fine-tuned: after some local steps of each client when all rounds are over "
            "(train.finetune_steps)"
        )
    if has_some(*TARGET_COLUMNS):
        said.append(
            "rounds, bytes and simulated seconds to the target: over the runs that reached "
            "it (how many of how many)"
        )
    if has_some("recovery_rounds"):
        said.append(
            "rounds to recover: over the runs that have recovered from all changes (how many "
            "of how many)"
        )
    if has_numbers("seconds"):
        said.append("seconds: training and evaluating, without compiling and setting up")
    return said


def _note_intervals(table: Sequence[Row]) -> list[str]:
    """State how the intervals in brackets were computed; [] if there are none."""
    first = headline(table)
    counts = (
        {row.cells[first.key].n for row in table if row.cells[first.key].interval}
        if first is not None
        else set()
    )
    if not counts:
        return []
    how = "bootstrap over the seeds" if max(counts) >= BOOTSTRAP else "Student's t over the seeds"
    if min(counts) < BOOTSTRAP <= max(counts):
        how += f", Student's t with fewer than {BOOTSTRAP}"
    return [f"in brackets: {1 - LEVEL:.0%} interval of the mean ({how})"]


def _note_draws(table: Sequence[Row]) -> list[str]:
    """State whether the seeds draw who holds which data, too (`data.seed = "run"`)."""
    followed = {draws_data(row) for row in table if len(row.configuration.units) > 1}
    if followed == {True}:
        return ['each seed draws its own partition (data.seed = "run"): ± and intervals include it']
    rest = (
        'rows with data.seed = "run": ± and intervals include the draw of the partition. Others:'
        if len(followed) > 1
        else ""
    )
    words = (
        f"{rest} ± and intervals cover seeds only: all seeds share one partition "
        '(data.seed = "run" draws one for each)'
    )
    return [words.strip()] if followed else []


def draws_data(row: Row) -> bool:
    """Return whether each seed of the row draws who holds which data."""
    return (row.configuration.units[0].record["config"].get("data") or {}).get("seed") == "run"


def number(column: Column, cell: Cell) -> str:
    """Format a cell: `93.1 ± 0.4`, `93.1 ± 0.4 [92.8, 93.4]` where the column shows intervals, `–`
    if no run has the quantity."""
    if not cell.n:
        return "–"
    text = quantity(column.kind, cell.mean)
    if (
        cell.std is not None
        and column.kind in ("percent", "score", "count")
        and (column.kind != "count" or cell.std > 0)
    ):
        text += f" ± {quantity(column.kind, cell.std)}"
    if column.interval and cell.interval is not None:
        text += f" [{', '.join(quantity(column.kind, end) for end in cell.interval)}]"
    if column.key in NOT_BY_ALL and cell.n < cell.total:
        text += f" ({cell.n} of {cell.total})"
    return text


def quantity(kind: str, value: float) -> str:
    """Format a number; `kind` is a Column's."""
    if not math.isfinite(value):
        return "–"
    if kind == "percent":
        return f"{100 * value:.1f}"
    if kind == "bytes":
        return size(value)
    if kind == "score":
        return f"{value:.2f}"
    return f"{value:.0f}" if kind == "count" and value == round(value) else f"{value:.1f}"


def size(value: float) -> str:
    """Format a number of bytes with decimal prefixes: `1.5 MB`."""
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if abs(value) >= 999.5:
            value /= 1000
            unit = larger
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.95 else f"{value:.1f} {unit}"


def terminal(table: Sequence[Row], width: int | None = None, bold: bool = False) -> str:
    """Format the table in aligned columns. The best has a star (and is bold), cells that do not
    differ significantly from it a ≈. `width`: the terminal's; the least important columns are left
    out if the table is wider."""
    if not table:
        return "no finished runs"
    columns = columns_of(table)
    left_out = []
    text = _align_rows(table, columns)
    for key in FIRST_TO_GO:
        if width is None or max(map(len, text)) <= width:
            break
        left_out += [c.heading for c in columns if key in (c.key, c.heading)]
        columns = [c for c in columns if key not in (c.key, c.heading)]
        text = _align_rows(table, columns)
    if bold:
        text = [_embolden(line) for line in text]
    if any(
        row.configuration.lost or any(cell.best or cell.tied for cell in row.cells.values())
        for row in table
    ):
        text += ["", *list_notes(table, "*", "≈")[1:]]
    if left_out:
        text.append(f"left out for lack of space: {', '.join(left_out)}")
    return "\n".join(text)


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
        cells = [number(c, cell) + _choose_mark(cell, "*", "≈", " ") for c, cell in marked]
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


def printable(text: str) -> str:
    """Remove control characters from a text, which could change a terminal's state."""
    return "".join(c if c.isprintable() else "�" for c in text)


def markdown(table: Sequence[Row]) -> str:
    """Write the table in GitHub's Markdown; the best in bold."""
    if not table:
        return "No finished runs.\n"

    def cell(column: Column, value: Cell) -> str:
        text = number(column, value)
        if value.best:
            return f"**{text}**"
        return text + (" ≈" if value.tied else "")

    head, body, texts = _make_grid(table, markdown_text, cell)
    lines = [
        f"| {' | '.join(head)} |",
        f"|{'|'.join(' --- ' if i < texts else ' ---: ' for i in range(len(head)))}|",
    ]
    lines += [f"| {' | '.join(line)} |" for line in body]
    return (
        "\n".join([*lines, "", *(f"{note}.  " for note in list_notes(table, "**bold**:", "≈"))])
        + "\n"
    )


def latex(table: Sequence[Row]) -> str:
    r"""Write the table as a booktabs tabular, to be used with \input; the best in bold."""
    if not table:
        return "% no finished runs\n"

    def cell(column: Column, value: Cell) -> str:
        text = number(column, value).replace(" ± ", r" $\pm$ ").replace("–", "--")
        if value.best:
            return rf"\textbf{{{text}}}"
        return text + (r"\textsuperscript{$\approx$}" if value.tied else "")

    head, body, texts = _make_grid(table, latex_text, cell)
    kinds = "l" * texts + "r" * (len(head) - texts)
    said = [latex_text(note) for note in list_notes(table, "bold:", "≈")]
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


def markdown_text(text: str) -> str:
    """Escape the text for Markdown."""
    escaped = "".join(
        "\\" + c if c in "\\`*_{}[]<>#|~" else c for c in " ".join(printable(text).split())
    )
    return escaped.replace("&", "&amp;")


def latex_text(text: str) -> str:
    """Escape the text for LaTeX."""
    special = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "α": r"$\alpha$",
        "≈": r"$\approx$",
        "–": "--",
        "|": r"\textbar{}",
        '"': "''",
    }
    return "".join(
        special.get(c, "\\" + c if c in "&%$#_{}" else c) for c in " ".join(printable(text).split())
    )


def to_csv(table: Sequence[Row]) -> str:
    """Write a row per configuration with unrounded numbers (accuracies as fractions): mean, std, n,
    the 95 % interval, best, and against the best the mean difference with its interval, the effect
    and the corrected p."""
    columns = columns_of(table)
    options = option_names(row.configuration for row in table)
    parts = (
        "mean",
        "std",
        "n",
        "low",
        "high",
        "best",
        "difference",
        "difference_low",
        "difference_high",
        "effect",
        "p",
    )
    writer = csv.writer(out := io.StringIO(), lineterminator="\n")
    heads = [f"{c.key}_{p}" for c in columns for p in (parts if c.better else parts[:5])]
    writer.writerow(["folder", "method", "label", *options, "done", "diverged", "failed", *heads])
    for row in table:
        each = row.configuration
        chosen = dict(each.options)
        counts = [len(each.by_status(status)) for status in ("done", "diverged", "failed")]
        numbers = [
            v
            for c in columns
            for v in _list_numbers(row.cells[c.key])[: len(parts) if c.better else 5]
        ]
        writer.writerow(
            [
                *map(no_formula, (each.folder, each.method, each.label)),
                *(no_formula(str(chosen.get(o, ""))) for o in options),
                *counts,
                *numbers,
            ]
        )
    return out.getvalue()


def _list_numbers(cell: Cell) -> list[str]:
    """List the numbers of a cell as the CSV has them; "" for a number that is missing."""

    def text(value: float | None, digits: int = 9) -> str:
        return "" if value is None else f"{value:.{digits}g}"

    low, high = cell.interval or (None, None)
    far = cell.behind[:4] if cell.behind is not None else (None,) * 4
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
