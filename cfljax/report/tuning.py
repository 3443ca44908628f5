"""Enters: the record of a search (`tune.json`). Leaves: its rungs and choices as text and as
HTML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from cfljax.registry.options import Table, show
from cfljax.report.cells import printable
from cfljax.report.page_data import escape_html, list_advice
from cfljax.report.tables import align, write_advice
from cfljax.results.advice import advise_on_search, find_best, sort_settings

if TYPE_CHECKING:
    from cfljax.launch.search_plan import SearchPlan

# The most settings of a group that are listed, the best first; tune.json has all
MAX_LISTED_SETTINGS = 60
# The picture of a group's curves in pixels: its size, and the margins with the labels of the axes
WIDTH = 560.0
HEIGHT = 200.0
LEFT = 46.0
BELOW = 26.0


def dry_run(plan: SearchPlan) -> str:
    """Say what a search would try, and what it would cost."""
    from cfljax.launch import search_plan

    rounds = plan.steps[-1]
    lines = []
    for group in plan.groups:
        seeds = len(group.settings[0].runs)
        settings = len(group.settings)
        numbers = search_plan.count_settings(settings, len(plan.steps), plan.reduce)
        climb = ", ".join(
            f"{n} to round {step}" for n, step in zip(numbers, plan.steps, strict=True)
        )
        cost = seeds * search_plan.count_cost(settings, plan.steps, plan.reduce) / rounds
        name = " ".join(filter(None, (group.label, group.data)))
        lines.append(
            f"{name}: {settings} settings of {seeds} seed{'s' if seeds > 1 else ''}: "
            f"{climb}; as much as {cost:.1f} whole runs"
        )
    return "\n".join([*lines, *(f"note: {line}" for line in plan.warnings)])


def text(table: Table) -> str:
    """Write the best setting of each group, with its score and what the search has cost."""
    lines = []
    for group in table["groups"]:
        best = find_best(group, table)
        words = (
            (setting_text(best), score_text(best["scores"][-1]))
            if best
            else ("none reached the end", "–")
        )
        lines.append([_format_name(group), *words, f"{count_spent_runs(group, table):.1f}"])
    grid = [["method", "best setting", table["metric"], "runs spent"], *lines]
    return "\n".join([*align(grid, lefts=2), *write_advice(advise_on_search(table))])


def _format_name(group: Table) -> str:
    return printable(" ".join(filter(None, (str(group["label"]), str(group.get("data", ""))))))


def count_spent_runs(group: Table, table: Table) -> float:
    """Sum what a group has cost, in whole runs."""
    reached = [
        len(each["runs"]) * table["rungs"][len(each["scores"]) - 1]
        for each in group["settings"]
        if each["scores"]
    ]
    return math.fsum(reached) / table["rungs"][-1]


def setting_text(setting: Table) -> str:
    """Format the options in which a setting differs from others."""
    return (
        printable(" ".join(f"{name}={show(value)}" for name, value in setting["varies"].items()))
        or "(only one)"
    )


def score_text(score: float | None) -> str:
    """Format a score; – for a run that diverged or failed."""
    return "–" if score is None else f"{score:.4f}"


def section(table: Table) -> str:
    """Write the part of the page on the search: for each group its curves up to the rungs, and its
    settings with their scores."""
    by = (
        f"by {table['metric']}, with seed{'s' if len(table['seeds']) > 1 else ''} "
        f"{', '.join(map(str, table['seeds']))}"
    )
    about = f"Successive halving {by}: at each rung one of {table['reduce']} settings continues. "
    about += "Test data are not used."
    parts = [
        f'<section id="tuning"><h2>Tuning</h2><p class="notes">{escape_html(about)}</p>',
        list_advice(advise_on_search(table)),
    ]
    for group in table["groups"]:
        cost = f"{len(group['settings'])} settings, {count_spent_runs(group, table):.1f} whole runs"
        best = find_best(group, table)
        name = escape_html(
            f"{_format_name(group)}: {setting_text(best) if best else 'none reached the end'}"
        )
        head = f"<summary>{name} ({cost})</summary>"
        parts.append(
            f"<details open>{head}<div "
            f'class="scroll">{curves(group, table)}</div>{_settings(group, table)}</details>'
        )
    return "".join([*parts, "</section>"])


def _settings(group: Table, table: Table) -> str:
    """Write the table of the settings of a group with their scores."""
    heads = [
        '<th class="word">setting</th>',
        *(f"<th>round {rung}</th>" for rung in table["rungs"]),
        '<th class="word"></th>',
    ]
    ordered = sort_settings(group, table["metric"])
    best_one = find_best(group, table)
    lines = []
    for setting in ordered[:MAX_LISTED_SETTINGS]:
        cells = [score_text(score) for score in setting["scores"]] + [""] * (
            len(table["rungs"]) - len(setting["scores"])
        )
        best = " class=best" if setting is best_one else ""
        end = "chosen" if setting is best_one else setting.get("ended", "")
        shown = "".join(f"<td{best}>{escape_html(cell)}</td>" for cell in cells)
        lines.append(
            f"<tr><th>{escape_html(setting_text(setting))}</th>{shown}<td "
            f'class="word">{escape_html(end)}</td></tr>'
        )
    more = (
        f'<p class="notes">and {len(ordered) - MAX_LISTED_SETTINGS} more; tune.json has all</p>'
        if len(ordered) > MAX_LISTED_SETTINGS
        else ""
    )
    return (
        "<div "
        f'class="scroll"><table><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{more}"
    )


class _Scale(NamedTuple):
    """Where rounds and values are in the picture."""

    # The last rung, at the right edge
    last: int
    low: float
    high: float

    def x(self, rounds: float) -> float:
        """Return the horizontal position of a round."""
        return LEFT + (WIDTH - LEFT - 10) * rounds / self.last

    def y(self, value: float) -> float:
        """Return the vertical position of a value; pixels are counted from the top."""
        span = (self.high - self.low) or 1.0
        return 10 + (HEIGHT - BELOW - 10) * (1 - (value - self.low) / span)


def curves(group: Table, table: Table) -> str:
    """Draw the metric over the rounds, a line per setting that ends where it stayed behind; the
    best one thick, rungs dotted."""
    ordered = sort_settings(group, table["metric"])[:MAX_LISTED_SETTINGS]
    values = [value for setting in ordered for _, value in _list_points(setting)]
    if not values:
        return ""
    scale = _Scale(table["rungs"][-1], min(values), max(values))
    lines = _draw_scale(scale, table["rungs"])
    # The best setting comes last, so that no other line covers it
    for at, setting in reversed(list(enumerate(ordered))):
        lines.append(_draw_setting(scale, setting, best=at == 0))
    size = f'viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" width="{WIDTH:.0f}"'
    label = f'aria-label="{escape_html(table["metric"])} over rounds"'
    return (
        f'<svg {size} role="img" {label} font-size="10" '
        f'style="max-width:100%">{"".join(lines)}</svg>'
    )


def _list_points(setting: Table) -> list[tuple[float, float]]:
    """List (round, value) of a setting, without the models before the first round."""
    pairs = zip(setting["rounds"], setting["values"], strict=True)
    return [(rounds, value) for rounds, value in pairs if rounds > 0]


def _draw_scale(scale: _Scale, rungs: list[int]) -> list[str]:
    """Draw the rungs as dotted lines with their rounds, and the least and the largest value."""
    lines = []
    for rung in rungs:
        x = f"{scale.x(rung):.1f}"
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="10" y2="{HEIGHT - BELOW}" stroke="currentColor" '
            'stroke-dasharray="2 3" opacity=".5"/>'
        )
        lines.append(
            f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle" fill="currentColor">{rung}</text>'
        )
    for value in (scale.low, scale.high):
        # Rounded as the lines are, then moved down to the middle of the text
        y = float(f"{scale.y(value):.1f}") + 4
        lines.append(
            f'<text x="{LEFT - 4}" y="{y:.1f}" text-anchor="end" '
            f'fill="currentColor">{value:.3g}</text>'
        )
    return lines


def _draw_setting(scale: _Scale, setting: Table, best: bool) -> str:
    """Draw the line of a setting, whose options appear when the pointer is on it."""
    points = [
        f"{scale.x(rounds):.1f},{scale.y(value):.1f}" for rounds, value in _list_points(setting)
    ]
    if best:
        look = 'stroke="var(--c0)" stroke-width="2.4"'
    else:
        look = 'stroke="currentColor" stroke-width="1" opacity=".45"'
    return (
        f'<polyline points="{" ".join(points)}" fill="none" '
        f"{look}><title>{escape_html(setting_text(setting))}</title></polyline>"
    )
