"""Enters: the rows of the comparison table. Leaves: what was tested, as a table of differences and
as sentences for a paper."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from cfljax.report import over_settings
from cfljax.report.cells import escape_latex, escape_markdown, format_cell
from cfljax.report.comparison import Cell, Column, Row, headline
from cfljax.report.notes import count_seeds, draws_data, explain_untested
from cfljax.report.over_settings import compare_over_settings, group_blocks, name_rows
from cfljax.results.statistics import (
    FEWEST_TESTED,
    LEVEL,
    Difference,
    Ranks,
    ranks,
)

HEADINGS = ("method", "difference from the best", "interval", "effect", "p", "p by Holm", "n")
# The most rows of the table of differences on the page and in Markdown and LaTeX; the CSV has all
MOST_ROWS = 200
# The most rows that lost runs which the sentence names
MOST_LOST = 12
Line = tuple[str, str, str, str, str, str, str]


def compare_with_best(table: Sequence[Row]) -> list[tuple[str, str, list[Line]]]:
    """Return (heading of the block, name of its best method, a line for each method that was tested
    against it) for each block."""
    column = headline(table)
    found = []
    for block in group_blocks(table):
        best = _find_best(block, column)
        lines = [] if column is None else [_make_line(row, row.cells[column.key]) for row in block]
        if best is not None and (tested := [line for line in lines if line is not None]):
            found.append((block[0].configuration.heading, best.configuration.title, tested))
    return found


def _make_line(row: Row, cell: Cell) -> Line | None:
    """Return the line of a method in the table of differences; None if it was not tested."""
    if cell.behind is None or cell.p is None or cell.p_raw is None:
        return None
    mean, low, high = (_format_signed(100 * value) for value in cell.behind[:3])
    return (
        row.configuration.title,
        mean,
        f"{low} to {high} ({format_confidence(cell.behind)})",
        format_effect(cell.behind),
        format_p(cell.p_raw),
        format_p(cell.p),
        str(cell.behind.n),
    )


def format_confidence(behind: Difference) -> str:
    """Format what an interval holds: `95 %`, `99.7 %`."""
    return f"{100 * behind.confidence:.4g} %"


def _format_signed(value: float, digits: int = 1) -> str:
    """Return the number with its sign, which stays where it is rounded to zero; zero itself is
    positive."""
    return f"{value + 0.0:+.{digits}f}"


def format_effect(behind: Difference) -> str:
    """Format the standardised difference."""
    if abs(behind.effect) <= 100:
        return _format_signed(behind.effect, 2)
    return "> 100" if behind.effect > 0 else "< -100"


def format_p(p: float) -> str:
    """Format a p value."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _find_best(block: Sequence[Row], column: Column | None) -> Row | None:
    """Return the best row of a block; None if the table has no headline or the block no best."""
    if column is None:
        return None
    return next((row for row in block if row.cells[column.key].best), None)


def compute_mean_ranks(table: Sequence[Row]) -> Ranks | None:
    """Rank the methods over the data sets and partitions of the table, by the headline. A method
    counts if it has runs on all of them and lost none; None for fewer than three such methods, or
    fewer than three data sets."""
    column = headline(table)
    blocks = group_blocks(table)
    if column is None or len(blocks) < 3:
        return None
    named = [name_rows(block, column) for block in blocks]
    names = [name for name in named[0] if all(name in each for each in named)]
    if len(names) < 3:
        return None
    scores = [[each[name].cells[column.key].mean for name in names] for each in named]
    return ranks(names, np.array(scores))


def write_paragraph(table: Sequence[Row]) -> str:
    """Say what was computed and tested, in sentences for a paper; "" where nothing can be said, and
    for fewer than FEWEST_TESTED seeds."""
    column = headline(table)
    counts = (
        [row.cells[column.key].n for row in table if row.cells[column.key].n]
        if column is not None
        else []
    )
    if column is None or max(counts, default=0) < FEWEST_TESTED:
        return ""
    seeds = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    parts = [
        f"We report the {column.sentence} in per cent (mean ± sample standard deviation of "
        f"{seeds} runs with different seeds), with the 95 % confidence interval of the mean in "
        "brackets (bootstrap over the seeds, expanded percentiles)"
    ]
    if len(follows := {draws_data(row) for row in table}) == 1:
        shared = "all of them share one partition of the data among the clients"
        parts.append(
            "Each seed draws the partition of the data, the initial model and the participants"
            if follows == {True}
            else f"Seeds draw the initial model and the participants; {shared}"
        )
    parts += _describe_lost(table) + _describe_tests(table, column)
    if (compared := compare_over_settings(table)) is not None:
        parts += [said] if (said := over_settings.summarise(compared)) else []
    if (over := compute_mean_ranks(table)) is not None:
        parts.append(describe_ranks(over))
    return ". ".join(parts) + "."


def summarise(table: Sequence[Row]) -> str:
    """Say the result in a sentence or two, of three lines at most; "" if nothing can be said, and
    for fewer than FEWEST_TESTED seeds."""
    column = headline(table)
    if column is None or count_seeds(table) < FEWEST_TESTED:
        return ""
    known = [row for row in table if row.cells[column.key].n]
    tested = [row for row in known if row.cells[column.key].behind is not None]
    tied = [row.configuration.title for row in tested if row.cells[column.key].tied]
    apart = f"{len(tested) - len(tied)} of the {len(tested)}"
    how = f"(two-sided paired t-tests over the shared seeds, Holm-corrected, α = {LEVEL:g})"
    if len(group_blocks(table)) > 1:
        # Data sets have different best methods: there is no single one to name
        if not tested:
            return write_paragraph(table)
        return f"{apart} differences from the best method on the same data are significant {how}."
    best = _describe_highest(known, column)
    if not tested:
        return best
    parts = []
    if len(tied) < len(tested):
        others = apart if tied else f"all {len(tested)}"
        parts.append(f"is significantly better than {others} others")
    if tied:
        others = _join_words(tied) if len(tied) < 5 else f"{len(tied)} others"
        parts.append(f"does not differ significantly from {others}")
    return f"{best} It {' and '.join(parts)} {how}."


def _describe_highest(known: Sequence[Row], column: Column) -> str:
    """Say in a sentence which method of one data set has the highest mean. Methods that lost runs
    count only if all did."""
    whole = [row for row in known if not row.configuration.lost] or list(known)
    best = max(whole, key=lambda row: row.cells[column.key].mean)
    cell = best.cells[column.key]
    accuracy = f"{format_cell(dataclasses.replace(column, interval=False), cell)} %"
    about = f"{'mean ± standard deviation, ' if cell.n > 1 else ''}n = {cell.n}"
    title = best.configuration.title
    if len(whole) == 1:
        return f"{title} has a {column.sentence}: {accuracy} ({about})."
    labels = {row.configuration.label for row in whole}
    things = "methods" if len(labels) == len(whole) else "settings"
    return (
        f"Of {len(whole)} {things}, {title} has the highest {column.sentence}: "
        f"{accuracy} ({about})."
    )


def _describe_lost(table: Sequence[Row]) -> list[str]:
    """Say which methods were not compared because runs of them are missing."""
    lost = [row.configuration for row in table if row.configuration.lost]
    if not lost:
        return []
    where = {each.block: f"{each.heading}: " for each in lost if each.heading}
    listed = [
        f"{each.title} ({where.get(each.block, '')}{each.lost} of {len(each.units)} runs)"
        for each in lost
    ]
    more = [f"{len(listed) - MOST_LOST} more"] if len(listed) > MOST_LOST else []
    return [
        "Not compared, because some of their runs are missing: "
        f"{_join_words([*listed[:MOST_LOST], *more])}"
    ]


def _describe_tests(table: Sequence[Row], column: Column) -> list[str]:
    """Say how methods were compared, and which differ significantly from the best."""
    tested = [row for row in table if row.cells[column.key].behind is not None]
    if not tested:
        whole = sum(not row.configuration.lost for row in table)
        return (
            [f"Differences were not tested, because fewer than {FEWEST_TESTED} seeds are shared"]
            if whole > 1
            else []
        )
    blocks = [block for block in group_blocks(table) if any(row in tested for row in block)]
    where = "" if len(blocks) == 1 else " on the same data"
    how = "two-sided paired t-tests over the shared seeds, Holm-corrected for the"
    family = "comparisons on each data set"
    if len(blocks) == 1:
        family = f"{len(tested)} comparison{'s' if len(tested) > 1 else ''}"
    said = [
        f"The method with the highest mean{where} was compared with each other one by {how} "
        f"{family} (α = {LEVEL:g}); intervals of differences are Student's, at the level of their "
        "step of the correction"
    ]
    if len(blocks) > 1:
        apart = sum(not row.cells[column.key].tied for row in tested)
        return [*said, f"{apart} of the {len(tested)} differences are significant"]
    best = _find_best(blocks[0], column)
    assert best is not None
    apart_rows = [row for row in tested if not row.cells[column.key].tied]
    tied_rows = [row for row in tested if row not in apart_rows]
    listed = []
    for words, rows in (
        ("is significantly better than", apart_rows),
        ("does not differ significantly from", tied_rows),
    ):
        if rows:
            compared = _join_words([_describe_comparison(row, column) for row in rows])
            listed.append(f"{words} {compared}")
    return [*said, f"{best.configuration.title} {'; it '.join(listed)}"]


def _describe_comparison(row: Row, column: Column) -> str:
    """Say by how much the best is better than this row. The signs are turned round: cells have the
    difference from the best, sentences what the best has more."""
    cell = row.cells[column.key]
    assert cell.behind is not None and cell.p is not None and cell.p_raw is not None
    far = cell.behind
    p = f"{_add_equals(format_p(cell.p))} (uncorrected {_add_equals(format_p(cell.p_raw))})"
    # 0.0 − x, because −x would write a zero as −0.0
    ends = f"{format_confidence(far)} CI {0.0 - 100 * far.high:.1f} to {0.0 - 100 * far.low:.1f}"
    effect = format_effect(far._replace(effect=-far.effect))
    return (
        f"{row.configuration.title} (by {-100 * far.mean:.1f} points, {ends}, g "
        f"{_add_equals(effect)}, p {p}, n = {far.n})"
    )


def _add_equals(text: str) -> str:
    """Put "=" before a number that has no "<" or ">"."""
    return text if text[0] in "<>" else f"= {text}"


def _join_words(words: list[str]) -> str:
    """Join the words with commas, and "and" before the last."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def describe_ranks(over: Ranks) -> str:
    """Describe the comparison over many data sets, in sentences."""
    k = len(over.names)
    n = over.data_sets
    f = "∞" if math.isinf(over.statistic) else f"{over.statistic:.2f}"
    p = format_p(over.p)
    test = (
        f"Friedman's test (Iman and Davenport) gives F({k - 1}, {(k - 1) * (n - 1)}) = {f}, p "
        f"{_add_equals(p)}"
    )
    listed = _join_words(
        [f"{name} {rank:.2f}" for name, rank in zip(over.names, over.means, strict=True)]
    )
    near = (
        f"mean ranks that differ by less than {over.distance:.2f} do not differ significantly "
        f"(Nemenyi's test, α = {LEVEL:g})"
    )
    end = f"; {near}" if over.p < LEVEL else "; no differences between mean ranks are significant"
    return (
        f"Over {n} settings (a data set and its partition), {test}. The mean ranks are "
        f"{listed}{end}"
    )


def score_name(table: Sequence[Row]) -> str:
    """Return what the score is called that methods are compared by."""
    column = headline(table)
    return "accuracy" if column is None else column.curve


def markdown(table: Sequence[Row]) -> str:
    """Write the table of differences and the sentences in Markdown; "" where nothing can be
    said."""

    lines: list[str] = []
    for heading, best, tested in compare_with_best(table):
        where = f" ({escape_markdown(heading)})" if heading else ""
        lines += [
            f"Against {escape_markdown(best)}{where}, in points of {score_name(table)} over shared "
            "seeds; "
            "effect: Hedges' g.",
            "",
        ]
        lines += [f"| {' | '.join(HEADINGS)} |", f"| --- |{' ---: |' * (len(HEADINGS) - 1)}"]
        lines += [
            f"| {' | '.join(map(escape_markdown, line))} |" for line in tested[:MOST_ROWS]
        ] + [""]
    if (over := compare_over_settings(table)) is not None and over.tested:
        lines += over_settings.markdown(over)
    if said := write_paragraph(table):
        lines.append(f"For a paper: {escape_markdown(said)}")
    return "\n".join(lines) + "\n" if lines else ""


def latex(table: Sequence[Row]) -> str:
    r"""Write the table of differences as a booktabs tabular, then the sentences as a comment; ""
    where nothing can be said."""
    blocks = compare_with_best(table)
    said = write_paragraph(table)
    lines = (
        [r"% needs \usepackage{booktabs}", r"\begin{tabular}{lrrrrrr}", r"\toprule"]
        if blocks
        else []
    )
    lines += [" & ".join(map(escape_latex, HEADINGS)) + r" \\"] if blocks else []
    for heading, best, tested in blocks:
        title = escape_latex(f"against {best}{f', {heading}' if heading else ''}")
        lines += [r"\midrule", rf"\multicolumn{{7}}{{l}}{{{title}}} \\"]
        lines += [
            " & ".join(_write_cell(cell) for cell in line) + r" \\" for line in tested[:MOST_ROWS]
        ]
    lines += [r"\bottomrule", r"\end{tabular}"] if blocks else []
    if (over := compare_over_settings(table)) is not None and over.tested:
        lines += over_settings.latex(over)
    remarks = (explain_untested(table), said and f"for a paper: {said}")
    comments = [f"% {escape_latex(remark)}" for remark in remarks if remark]
    return "\n".join([*lines, *comments]) + "\n"


def _write_cell(cell: str) -> str:
    return escape_latex(cell).replace("-", r"$-$") if cell[:1] in "+-<>" else escape_latex(cell)
