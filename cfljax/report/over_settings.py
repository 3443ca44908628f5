"""Enters: the rows of the comparison table. Leaves: the methods over all settings (a data set and
its partition): which are worse than the best one on these settings, and which would be on a new
one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.report.cells import escape_latex, escape_markdown, format_number, printable
from cfljax.report.comparison import (
    Column,
    PairedTest,
    Row,
    Seeds,
    headline,
    map_by_seed,
    test_against,
)
from cfljax.results.statistics import (
    EQUIVALENT,
    FEWEST_TESTED,
    LEVEL,
    NewSetting,
    Typical,
    expect_on_new_setting,
    interquartile_mean,
)

HEADINGS = (
    "method",
    "mean",
    "interquartile mean",
    "behind the best",
    "best is better on these settings",
    "best is better on a new setting",
)


class MethodOverSettings(NamedTuple):
    """A method on all settings."""

    name: str
    # The mean of its means on the settings
    mean: float
    typical: Typical
    # Its mean over the settings against that of the best method, with the seeds as the sample;
    # None: it is the best, or shares fewer than FEWEST_TESTED seeds with it
    here: PairedTest | None
    # Of the best method against this one, with the settings as the sample; None: it is the best, or
    # there are fewer than FEWEST_TESTED settings
    anywhere: NewSetting | None

    @property
    def better_here(self) -> float:
        """Return how probable it is that the best method is better than this one on these settings:
        1 − p / 2, with Holm's p. NaN if that was not tested."""
        return math.nan if self.here is None else 1 - self.here.p / 2

    @property
    def better_anywhere(self) -> float:
        """Return how probable it is that the best method is better by more than EQUIVALENT on a new
        setting; NaN if that was not tested."""
        return math.nan if self.anywhere is None else self.anywhere.better


class OverSettings(NamedTuple):
    """The methods that have all their runs on every setting."""

    # The best one first
    methods: list[MethodOverSettings]
    # The means over the seeds, f64[N, k], methods in this order
    scores: np.ndarray
    # For each row of the table, its method; None for a method that lacks a setting
    rows: list[MethodOverSettings | None]
    # The fewest seeds of a method on a setting
    seeds: int

    @property
    def tested(self) -> bool:
        """Whether there are enough seeds or settings to test."""
        return any(method.here or method.anywhere for method in self.methods)

    @property
    def settings(self) -> int:
        """The number of settings."""
        return len(self.scores)


def group_blocks(table: Sequence[Row]) -> list[list[Row]]:
    """Group the rows that were trained on the same data."""
    found: dict[str, list[Row]] = {}
    for row in table:
        found.setdefault(row.configuration.block, []).append(row)
    return list(found.values())


def name_rows(block: Sequence[Row], column: Column) -> dict[str, Row]:
    """Return the rows of a block that lost no run and have the quantity, by name: that of the
    method, with the options that tell it from others of the block, and with its folder if the block
    has the name twice."""
    shown = [row.configuration.display_name for row in block]
    names = [
        name if shown.count(name) == 1 else row.configuration.title
        for name, row in zip(shown, block, strict=True)
    ]
    return {
        name if names.count(name) == 1 else f"{row.configuration.folder}:{name}": row
        for name, row in zip(names, block, strict=True)
        if math.isfinite(row.cells[column.key].mean) and not row.configuration.lost
    }


def compare_over_settings(table: Sequence[Row]) -> OverSettings | None:
    """Compare the methods over all settings by the headline; None for a single setting, or fewer
    than two methods on all."""
    column = headline(table)
    blocks = group_blocks(table)
    if column is None or len(blocks) < 2:
        return None
    named = [name_rows(block, column) for block in blocks]
    names = [name for name in named[0] if all(name in each for each in named)]
    if len(names) < 2:
        return None
    over = compare_runs(
        {name: [map_by_seed(each[name].configuration, column) for each in named] for name in names}
    )
    by_row = {id(each[method.name]): method for each in named for method in over.methods}
    return over._replace(rows=[by_row.get(id(row)) for row in table])


def compare_runs(runs: Mapping[str, Sequence[Seeds]]) -> OverSettings:
    """Compare methods over all settings; the rows of the result are empty.

    Args:
        runs: by method, a quantity of its runs on each of N settings, the same ones for all."""
    names = list(runs)
    scores = np.array(
        [[math.fsum(each.values()) / len(each) for each in settings] for settings in runs.values()]
    ).T
    order = np.argsort(-scores.mean(axis=0), kind="stable")
    ranked = {names[i]: list(runs[names[i]]) for i in order}
    scores = scores[:, order]
    seeds = min(len(each) for settings in runs.values() for each in settings)
    return OverSettings(_compare_with_first(ranked, scores), scores, [], seeds)


def _compare_with_first(
    runs: Mapping[str, list[Seeds]], scores: np.ndarray
) -> list[MethodOverSettings]:
    """Compare the methods, the best of which comes first, with it.

    Args:
        runs: by method, a quantity of its runs on each setting.
        scores: f64[N, k], the means over the seeds."""
    means = {i: _average_settings(each) for i, each in enumerate(runs.values())}
    tests = test_against(means[0], {i: each for i, each in means.items() if i})
    enough = len(scores) >= FEWEST_TESTED
    return [
        MethodOverSettings(
            name,
            float(scores[:, i].mean()),
            interquartile_mean([list(each.values()) for each in settings]),
            tests.get(i),
            expect_on_new_setting(scores[:, 0] - scores[:, i]) if i and enough else None,
        )
        for i, (name, settings) in enumerate(runs.items())
    ]


def _average_settings(settings: Sequence[Seeds]) -> Seeds:
    """Average over the settings, for each seed that all have. Runs of one seed share what it draws,
    so that they are no independent sample."""
    shared = [seed for seed in settings[0] if all(seed in each for each in settings)]
    return {seed: math.fsum(each[seed] for each in settings) / len(settings) for seed in shared}


def list_lines(over: OverSettings) -> list[tuple[str, ...]]:
    """List the methods, the best first, as the lines of a table with HEADINGS."""
    first = over.methods[0]
    return [
        (
            method.name,
            format_number("percent", method.mean),
            _format_typical(method.typical),
            "best" if method is first else f"{100 * (first.mean - method.mean):.1f}",
            "" if method is first else format_here(method),
            "" if method is first else format_anywhere(method),
        )
        for method in over.methods
    ]


def _format_typical(typical: Typical) -> str:
    text = format_number("percent", typical.mean)
    if typical.interval is None:
        return text
    return f"{text} [{', '.join(format_number('percent', end) for end in typical.interval)}]"


def format_here(method: MethodOverSettings) -> str:
    """Say whether the best method is better than this one on these settings."""
    if method.here is None:
        return "too few seeds to test"
    p = "p < 0.001" if method.here.p < 0.001 else f"p = {method.here.p:.3f}"
    return f"{'yes' if method.here.p < LEVEL else 'not told apart'}, {p}"


def format_anywhere(method: MethodOverSettings) -> str:
    """Say how probable it is that the best method is better on a new setting."""
    if method.anywhere is None:
        return "too few settings to test"
    better, equal, _ = method.anywhere
    return f"{100 * better:.0f} %, equal {100 * equal:.0f} %"


def describe(over: OverSettings) -> str:
    """Say how the columns of the table are to be read."""
    return (
        f"Over {over.settings} settings, in per cent. On these settings: paired t-tests over the "
        "seeds of the means over the settings, Holm-corrected. On a new setting like these: "
        f"Bayesian signed-rank test; equal: within {100 * EQUIVALENT:g} point. In brackets: 95 % "
        "interval by a bootstrap over the seeds of each setting"
    )


def summarise(over: OverSettings) -> str:
    """Say in a sentence for a paper which methods the best one is better than; "" if nothing was
    tested."""
    first = over.methods[0].name
    here = [method for method in over.methods if method.here is not None]
    there = [method for method in over.methods if method.anywhere is not None]
    said = []
    if here:
        found = sum(m.here is not None and m.here.p < LEVEL for m in here)
        said.append(
            f"On average over these {over.settings} settings, {first} is significantly better than "
            f"{found} of {len(here)} methods (paired t-tests over the seeds, Holm-corrected, α = "
            f"{LEVEL:g})"
        )
    if here and there:
        found = sum(method.better_anywhere >= 1 - LEVEL for method in there)
        said.append(
            f"On a new setting it is better by more than {100 * EQUIVALENT:g} point than {found} "
            f"of them with a probability of at least {1 - LEVEL:g} (Bayesian signed-rank test over "
            "the settings)"
        )
    return ". ".join(said)


def terminal(over: OverSettings) -> list[list[str]]:
    """Return the table as a grid of cells for a terminal."""
    return [list(HEADINGS), *([printable(cell) for cell in line] for line in list_lines(over))]


def markdown(over: OverSettings) -> list[str]:
    """Write the table in Markdown."""
    lines = [" | ".join(map(escape_markdown, line)) for line in list_lines(over)]
    return [
        f"{escape_markdown(describe(over))}.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"| --- |{' ---: |' * (len(HEADINGS) - 1)}",
        *(f"| {line} |" for line in lines),
        "",
    ]


def latex(over: OverSettings) -> list[str]:
    """Write the table as a booktabs tabular."""
    lines = [" & ".join(map(escape_latex, line)) + r" \\" for line in list_lines(over)]
    return [
        f"% {escape_latex(describe(over))}",
        rf"\begin{{tabular}}{{l{'r' * (len(HEADINGS) - 1)}}}",
        r"\toprule",
        " & ".join(map(escape_latex, HEADINGS)) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
