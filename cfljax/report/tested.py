"""Enters: the rows of the comparison table. Leaves: what was tested, as a table of differences and
as sentences for a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cfljax.report.comparison import Column, Row, headline
from cfljax.report.tables import draws_data, latex_text, number
from cfljax.results.statistics import BOOTSTRAP, FEWEST, LEVEL, Difference, Ranks, ranks

HEADINGS = ("method", "difference from the best", "95 % interval", "effect", "p", "n")
# The most rows of the table of differences on the page and in Markdown and LaTeX; the CSV has all
MOST_ROWS = 200
# The most rows that lost runs which the sentence names
MOST_LOST = 12
IN_TEXT = {
    "accuracy_at_best_val": "test accuracy at the round of the best validation accuracy",
    "accuracy_last10": "mean test accuracy over the last ten evaluations",
    "accuracy_last": "test accuracy at the last evaluation",
}
Line = tuple[str, str, str, str, str, str]


def differences(table: Sequence[Row]) -> list[tuple[str, str, list[Line]]]:
    """(heading of the block, name of its best method, a line for each method that was tested
    against it) for each block."""
    column = headline(table)
    found = []
    for block in _group_blocks(table):
        best = _find_best(block, column)
        lines = (
            []
            if column is None
            else [
                _make_line(row, row.cells[column.key].behind, row.cells[column.key].p)
                for row in block
            ]
        )
        if best is not None and (tested := [line for line in lines if line is not None]):
            found.append((block[0].configuration.heading, best.configuration.title, tested))
    return found


def _make_line(row: Row, behind: Difference | None, p: float | None) -> Line | None:
    if behind is None or p is None:
        return None
    mean, low, high = (_signed(100 * value) for value in behind[:3])
    return (
        row.configuration.title,
        mean,
        f"{low} to {high}",
        effect_text(behind),
        p_text(p),
        str(behind.n),
    )


def _signed(value: float, digits: int = 1) -> str:
    """Return the number with its sign, which stays where it is rounded to zero; zero itself is
    positive."""
    return f"{value + 0.0:+.{digits}f}"


def effect_text(behind: Difference) -> str:
    """Format the standardised difference."""
    return (
        _signed(behind.effect, 2)
        if abs(behind.effect) <= 100
        else "> 100"
        if behind.effect > 0
        else "< -100"
    )


def p_text(p: float) -> str:
    """Format a p value."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _group_blocks(table: Sequence[Row]) -> list[list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in table:
        found.setdefault(row.configuration.block, []).append(row)
    return list(found.values())


def _find_best(block: Sequence[Row], column: Column | None) -> Row | None:
    return (
        None if column is None else next((row for row in block if row.cells[column.key].best), None)
    )


def mean_ranks(table: Sequence[Row]) -> Ranks | None:
    """Rank the methods over the data sets and partitions of the table, by the headline. A method
    counts if it has runs on all of them and lost none; None for fewer than three such methods, or
    fewer than three data sets."""
    column = headline(table)
    blocks = _group_blocks(table)
    if column is None or len(blocks) < 3:
        return None
    scores = [_map_by_name(block, column) for block in blocks]
    names = [name for name in scores[0] if all(name in each for each in scores)]
    if len(names) < 3:
        return None
    return ranks(names, np.array([[each[name] for name in names] for each in scores]))


def _map_by_name(block: Sequence[Row], column: Column) -> dict[str, float]:
    """Name of the method, with the folder where one block has the name twice -> mean over the
    seeds."""
    names = [row.configuration.title for row in block]
    means = [(row.configuration, row.cells[column.key].mean) for row in block]
    every = (
        (each.title, each.folder, mean)
        for each, mean in means
        if math.isfinite(mean) and not each.lost
    )
    return {
        name if names.count(name) == 1 else f"{folder}:{name}": mean for name, folder, mean in every
    }


def sentence(table: Sequence[Row]) -> str:
    """Say what was computed and tested, in sentences for a paper; "" where nothing can be said."""
    column = headline(table)
    counts = (
        [row.cells[column.key].n for row in table if row.cells[column.key].n]
        if column is not None
        else []
    )
    if column is None or not counts:
        return ""
    seeds = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    runs = f"{seeds} run{'' if max(counts) == 1 else 's'}"
    parts = [
        f"We report the {IN_TEXT[column.key]} in per cent (mean ± sample standard deviation of "
        f"{runs} with different seeds)"
    ]
    if max(counts) >= FEWEST:
        way = (
            "bootstrap over the seeds, expanded percentiles"
            if max(counts) >= BOOTSTRAP
            else "Student's t"
        )
        parts[0] += f", with the 95 % confidence interval of the mean in brackets ({way})"
    if max(counts) > 1 and len(follows := {draws_data(row) for row in table}) == 1:
        shared = "all of them share one partition of the data among the clients"
        parts.append(
            "Each seed draws the partition of the data, the initial model and the participants"
            if follows == {True}
            else f"Seeds draw the initial model and the participants; {shared}"
        )
    parts += _describe_lost(table) + _describe_tests(table, column)
    if (over := mean_ranks(table)) is not None:
        parts.append(about_ranks(over))
    return ". ".join(parts) + "."


def brief(table: Sequence[Row]) -> str:
    """Say the result in a sentence or two, of three lines at most; "" where nothing can be said."""
    column = headline(table)
    blocks = _group_blocks(table)
    known = [] if column is None else [row for row in table if row.cells[column.key].n]
    if column is None or not known:
        return ""
    tested = [row for row in known if row.cells[column.key].behind is not None]
    near = [row.configuration.title for row in tested if row.cells[column.key].tied]
    how = f"(two-sided paired t-tests over the shared seeds, Holm-corrected, α = {LEVEL:g})"
    far = f"{len(tested) - len(near)} of the {len(tested)}"
    if len(blocks) > 1:
        return (
            f"{far} differences from the best method on the same data are significant {how}."
            if tested
            else sentence(table)
        )
    known = [row for row in known if not row.configuration.lost] or known
    best = max(known, key=lambda row: row.cells[column.key].mean)
    cell = best.cells[column.key]
    labels = {row.configuration.label for row in known}
    many = f"Of {len(known)} {'methods' if len(labels) == len(known) else 'settings'}, "
    said = (
        f"{many if len(known) > 1 else ''}{best.configuration.title} has "
        f"{'the highest' if len(known) > 1 else 'a'} "
    )
    about = f"{'mean ± standard deviation, ' if cell.n > 1 else ''}n = {cell.n}"
    said += f"{IN_TEXT[column.key]}: {number(column._replace(interval=False), cell)} % ({about})."
    better = (
        f"is significantly better than {far if near else f'all {len(tested)}'} others"
        if len(near) < len(tested)
        else ""
    )
    equal = (
        "does not differ significantly from "
        f"{_joined(near) if len(near) < 5 else f'{len(near)} others'}"
        if near
        else ""
    )
    return (
        f"{said} It {' and '.join(part for part in (better, equal) if part)} {how}."
        if tested
        else said
    )


def _describe_lost(table: Sequence[Row]) -> list[str]:
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
        f"{_joined([*listed[:MOST_LOST], *more])}"
    ]


def _describe_tests(table: Sequence[Row], column: Column) -> list[str]:
    tested = [row for row in table if row.cells[column.key].behind is not None]
    if not tested:
        whole = sum(not row.configuration.lost for row in table)
        return (
            [f"Differences were not tested, because fewer than {FEWEST} seeds are shared"]
            if whole > 1
            else []
        )
    blocks = [block for block in _group_blocks(table) if any(row in tested for row in block)]
    where = "" if len(blocks) == 1 else " on the same data"
    how = "two-sided paired t-tests over the shared seeds, Holm-corrected for the"
    number = (
        f"{len(tested)} comparison{'s' if len(tested) > 1 else ''}"
        if len(blocks) == 1
        else "comparisons on each data set"
    )
    said = [
        f"The method with the highest mean{where} was compared with each other one by {how} "
        f"{number} (α = {LEVEL:g})"
    ]
    if len(blocks) > 1:
        apart = sum(not row.cells[column.key].tied for row in tested)
        return [*said, f"{apart} of the {len(tested)} differences are significant"]
    best = _find_best(blocks[0], column)
    assert best is not None
    groups = {True: [row for row in tested if not row.cells[column.key].tied], False: []}
    groups[False] = [row for row in tested if row not in groups[True]]
    words = {True: "is significantly better than", False: "does not differ significantly from"}
    listed = [
        f"{words[far]} {_joined([_compare(row, column) for row in rows])}"
        for far, rows in groups.items()
        if rows
    ]
    return [*said, f"{best.configuration.title} {'; it '.join(listed)}"]


def _compare(row: Row, column: Column) -> str:
    cell = row.cells[column.key]
    assert cell.behind is not None and cell.p is not None
    far = cell.behind
    p = p_text(cell.p)
    ends = f"95 % CI {0.0 - 100 * far.high:.1f} to {0.0 - 100 * far.low:.1f}"
    effect = effect_text(far._replace(effect=-far.effect))
    return (
        f"{row.configuration.title} (by {-100 * far.mean:.1f} points, {ends}, g "
        f"{_equal(effect)}, p {_equal(p)}, n = {far.n})"
    )


def _equal(text: str) -> str:
    return text if text[0] in "<>" else f"= {text}"


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def about_ranks(over: Ranks) -> str:
    """Describe the comparison over many data sets, in sentences."""
    k = len(over.names)
    n = over.data_sets
    f = "∞" if math.isinf(over.statistic) else f"{over.statistic:.2f}"
    p = p_text(over.p)
    test = (
        f"Friedman's test (Iman and Davenport) gives F({k - 1}, {(k - 1) * (n - 1)}) = {f}, p "
        f"{_equal(p)}"
    )
    listed = _joined(
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


def markdown(table: Sequence[Row]) -> str:
    """Write the table of differences and the sentences in Markdown; "" where nothing can be
    said."""
    from cfljax.report.tables import markdown_text

    lines: list[str] = []
    for heading, best, tested in differences(table):
        where = f" ({markdown_text(heading)})" if heading else ""
        lines += [
            f"Against {markdown_text(best)}{where}, in points of accuracy over shared seeds; "
            "effect: Hedges' g.",
            "",
        ]
        lines += [f"| {' | '.join(HEADINGS)} |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
        lines += [f"| {' | '.join(map(markdown_text, line))} |" for line in tested[:MOST_ROWS]] + [
            ""
        ]
    said = sentence(table)
    return (
        "\n".join([*lines, *([f"For a paper: {markdown_text(said)}"] if said else [])]) + "\n"
        if lines or said
        else ""
    )


def latex(table: Sequence[Row]) -> str:
    r"""Write the table of differences as a booktabs tabular, then the sentences as a comment; ""
    where nothing can be said."""
    blocks = differences(table)
    said = sentence(table)
    lines = (
        [r"% needs \usepackage{booktabs}", r"\begin{tabular}{lrrrrr}", r"\toprule"]
        if blocks
        else []
    )
    lines += [" & ".join(map(latex_text, HEADINGS)) + r" \\"] if blocks else []
    for heading, best, tested in blocks:
        title = latex_text(f"against {best}{f', {heading}' if heading else ''}")
        lines += [r"\midrule", rf"\multicolumn{{6}}{{l}}{{{title}}} \\"]
        lines += [
            " & ".join(_in_latex(cell) for cell in line) + r" \\" for line in tested[:MOST_ROWS]
        ]
    lines += [r"\bottomrule", r"\end{tabular}"] if blocks else []
    return "\n".join([*lines, *([f"% for a paper: {latex_text(said)}"] if said else [])]) + "\n"


def _in_latex(cell: str) -> str:
    return latex_text(cell).replace("-", r"$-$") if cell[:1] in "+-<>" else latex_text(cell)
