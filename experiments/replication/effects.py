"""Enters: Sections of a paper. Leaves: its figure as SVG: for each claim that has a place in it the
number of each seed beside the published one, in the colour of its verdict. A panel has the settings
in which a claim was tried, where a paper leaves them open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.replication.claims import counted
from experiments.replication.measured import Section
from experiments.replication.paper_figures import step_of, text
from experiments.replication.published import Claim
from experiments.replication.verdicts import (
    AGAIN,
    AT_SIZE,
    DIRECTION,
    FAILS,
    LARGER,
    NO_TEST,
    NOT_RUN,
    PART,
    REPRODUCES,
    UNDECIDED,
    Verdict,
)

COLOURS = {
    REPRODUCES: "#009e73",
    DIRECTION: "#0072b2",
    LARGER: "#6a51a3",
    PART: "#8c6d00",
    FAILS: "#d55e00",
}
"""Of verdicts; of all others grey."""
SHORT = {
    REPRODUCES: "yes",
    DIRECTION: "in direction",
    LARGER: "larger",
    PART: "less than half",
    FAILS: "no",
    UNDECIDED: "not decided",
}
SHORT |= {AGAIN: "run again", NO_TEST: "no test", NOT_RUN: "not run"}
WIDTH, LEFT, PLOT, ROW, HEAD, GAP = 460, 128, 212, 16, 22, 26
"""The widths of a panel, its names and its plot; the heights of a row, a title, and the gap below a
panel."""
COLUMNS = 2


class Row(NamedTuple):
    """A claim in a panel."""

    name: str
    seeds: list[tuple[float, bool]]
    """(Number, whether it is at least that) of each seed."""
    published: float | None
    verdict: Verdict

    @property
    def word(self) -> str:
        """The verdict, of small runs with what they say."""
        inner = (
            self.verdict.why.removeprefix("small: ").partition(",")[0]
            if self.verdict.word == AT_SIZE
            else ""
        )
        return f"small, {SHORT[inner]}" if inner else SHORT[self.verdict.word]


def panels(sections: Iterable[Section]) -> dict[str, list[Row]]:
    """Title -> its rows, in the order of the claims."""
    found: dict[str, list[Row]] = {}
    for section in sections:
        for claim, verdict in zip(section.published.claims, section.verdicts, strict=True):
            if claim.panel:
                title, name = claim.panel
                scale = 100.0 if claim.kind == "reduction" else 1.0
                published = (
                    section.published.cell(claim.cells[0]).published
                    if claim.kind == "within"
                    else claim.published
                )
                shown = None if published is None else scale * published
                found.setdefault(title, []).append(
                    Row(name, _count_seeds(claim, section), shown, verdict)
                )
    return found


def _count_seeds(claim: Claim, section: Section) -> list[tuple[float, bool]]:
    cells = [section.measured[name] for name in claim.cells]
    draws = [draw for draw in cells[0].values if all(draw in cell.values for cell in cells)]
    if claim.kind == "reduction":
        never = [math.isinf(cells[1].values[draw]) for draw in draws]
        shares = [1 - counted(cells[0], draw) / counted(cells[1], draw) for draw in draws]
        return [(100 * share, least) for share, least in zip(shares, never, strict=True)]
    numbers = [
        cells[0].values[draw] - sum(cell.values[draw] for cell in cells[1:]) for draw in draws
    ]
    return [(number, False) for number in numbers if math.isfinite(number)]


def effects(found: dict[str, list[Row]]) -> str:
    """Draw the figure of these panels."""
    parts, tops = [], [0.0] * COLUMNS
    for title, rows in found.items():
        column = tops.index(min(tops))
        parts += _draw_panel(title, rows, column * WIDTH, tops[column])
        tops[column] += HEAD + ROW * len(rows) + GAP
    width, height = WIDTH * min(COLUMNS, len(found)), max(tops) + 18
    parts.append(
        text(
            8,
            height - 5,
            "dots: our seeds (open: at least that); diamonds: published; the word: our verdict",
        )
    )
    box = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
    body = "\n".join([f'<rect width="{width}" height="{height:.0f}" fill="#fff"/>', *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" '
        f'font-size="11">\n{body}\n</svg>\n'
    )


def _draw_panel(title: str, rows: Sequence[Row], x: float, y: float) -> list[str]:
    numbers = [number for row in rows for number, _ in row.seeds] + [
        row.published for row in rows if row.published is not None
    ]
    low, high = max(min([0.0, *numbers]), -100.0), max([0.0, *numbers])
    high = high if high > low else low + 1.0
    step = step_of(high - low)
    low, high = step * math.floor(low / step), step * math.ceil(high / step - 1e-9)
    bottom = y + HEAD + ROW * len(rows)

    def at(number: float) -> float:
        return x + LEFT + (max(number, low) - low) / (high - low) * PLOT

    parts = [text(x + 8, y + 14, title, size=13)]
    for i in range(round((high - low) / step) + 1):
        value = low + i * step
        dark = "#888" if abs(value) < step / 2 else "#ddd"
        parts.append(
            f'<path d="M{at(value):.1f} {y + HEAD - 2:.0f}V{bottom:.0f}" stroke="{dark}"/>'
        )
        parts.append(text(at(value), bottom + 12, f"{value:.6g}", "middle", 10))
    for i, row in enumerate(rows):
        middle, colour = y + HEAD + ROW * (i + 0.5), COLOURS.get(row.verdict.word, "#777")
        parts.append(text(x + LEFT - 6, middle + 4, row.name, "end"))
        parts.append(text(x + LEFT + PLOT + 8, middle + 4, row.word, fill=colour))
        for number, least in row.seeds:
            fill = "none" if least else colour
            parts.append(
                f'<circle cx="{at(number):.1f}" cy="{middle:.1f}" r="3" fill="{fill}" '
                f'stroke="{colour}" opacity=".8"/>'
            )
        if row.published is not None:
            parts.append(
                f'<path d="M{at(row.published):.1f} {middle - 5:.1f}l5 5l-5 5l-5-5z" '
                'fill="none" stroke="#222"/>'
            )
    return parts
