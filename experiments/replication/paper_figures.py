"""Enters: a Section with a figure. Leaves: its curves over rounds as SVG, the published points
beside them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from cfljax.report.configurations import Unit
from experiments.replication.measured import Section
from experiments.replication.quantity import NO_FRACTIONS

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 300, 46, 168, 30, 34
"""Of the picture, and of its edges; names stand in the right one."""
MOST = 120
"""The most points of a curve that are drawn; the picture says so where there are more."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#6a51a3", "#666666")
"""Told apart by those who confuse colours, on light and dark."""


class Curve(NamedTuple):
    """The mean over seeds, and the least and the most of them, in each round in which all were
    evaluated."""

    rounds: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int
    all_rounds: int
    """How many rounds there are, of which `rounds` are drawn."""


def colours_of(sections: Sequence[Section]) -> dict[str, str]:
    """Name of a curve -> its colour in all figures of a paper."""
    names = [
        name
        for section in sections
        for figure in section.published.figures
        for name in figure.curves
    ]
    return {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(dict.fromkeys(names))}


def _told_apart(names: Iterable[str], colours: Mapping[str, str]) -> list[str]:
    """Choose the colours of a figure's curves: the paper's, and another if two curves would have
    the same."""
    found: list[str] = []
    for at, name in enumerate(names):
        free = [colour for colour in COLOURS if colour not in found]
        wanted = colours.get(name, COLOURS[at % len(COLOURS)])
        found.append(wanted if wanted in free or not free else free[0])
    return found


def picture(
    section: Section, number: int, colours: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Draw the figure of that number as an SVG file. `colours`: of curves by their names."""
    figure = section.published.figures[number]
    percent = section.published.unit == "%" and figure.history not in NO_FRACTIONS
    scale = section.published.scale if percent else 1.0
    published = figure.points or {}
    curves = [_read_curve(units, figure.history, scale) for units in section.drawn_runs[number]]
    ends = _find_ends(curves, [point for points in published.values() for point in points])
    axes = _Axes(*ends)
    unit = " (%)" if percent else ""
    parts = [*axes.lines(), text(LEFT, 16, figure.title, size=13)]
    about = f"rounds{_describe_thinning(curves)}; ours: mean{unit}, least and most of the seeds"
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, about, "middle"))
    labels = []
    for name, curve, colour in zip(
        figure.curves, curves, _told_apart(figure.curves, colours), strict=True
    ):
        if curve is not None:
            parts += _drawn(curve, axes, colour)
            labels.append((axes.y(float(curve.mean[-1])), f"{name} ({curve.seeds})", colour))
        for x, y in published.get(name, []):
            parts.append(
                f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3.5" fill="none" '
                f'stroke="{colour}" stroke-width="1.6"/>'
            )
    parts += _draw_labels(labels)
    if published:
        parts.append(text(WIDTH - RIGHT + 8, HEIGHT - 4, "circles: published"))
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" '
        f'font-size="11">\n{_GROUND}\n{body}\n</svg>\n'
    )


_GROUND = (
    f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n<clipPath id="inside"><rect '
    f'x="{LEFT}" y="{TOP - 2}" '
    f'width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM + 4}"/></clipPath>'
)
"""White, and the part of the picture beyond which a curve is not drawn."""


def _describe_thinning(curves: list[Curve | None]) -> str:
    """Return what the picture says of rounds that are not drawn."""
    most = max(
        (curve.all_rounds / len(curve.rounds) for curve in curves if curve is not None), default=1.0
    )
    return "" if most <= 1 else f" (one in {most:.1f} is drawn)"


def _read_curve(units: list[Unit], history: str, scale: float) -> Curve | None:
    known = []
    for unit in units:
        arrays = unit.store.read(unit.id)[1]
        rounds, values = arrays.get("history/round"), arrays.get(f"history/{history}")
        if rounds is not None and values is not None and rounds.shape == values.shape:
            seen = (rounds >= 1) & np.isfinite(values)
            known.append(
                dict(
                    zip(
                        rounds[seen].tolist(),
                        (scale * values[seen].astype(np.float64)).tolist(),
                        strict=True,
                    )
                )
            )
    common = sorted(set.intersection(*map(set, known))) if known else []
    if not common:
        return None
    kept = np.unique(np.linspace(0, len(common) - 1, min(len(common), MOST)).round().astype(int))
    rounds = np.array(common)[kept]
    lines = np.array([[values[at] for at in rounds.tolist()] for values in known])
    return Curve(rounds, lines.mean(0), lines.min(0), lines.max(0), len(known), len(common))


def _find_ends(curves: list[Curve | None], points: list[list[float]]) -> tuple[float, float, float]:
    """(last round, least, most) of what is drawn; the least is of the means, so that one bad start
    does not press all else."""
    drawn = [curve for curve in curves if curve is not None]
    last = max(
        [float(curve.rounds[-1]) for curve in drawn] + [point[0] for point in points] + [1.0]
    )
    numbers = [float(np.quantile(curve.mean, 0.03)) for curve in drawn] + [
        float(curve.high.max()) for curve in drawn
    ]
    numbers += [point[1] for point in points]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    return last, low, high if high > low else low + 1.0


class _Axes:
    """From rounds and numbers to the picture."""

    def __init__(self, last: float, low: float, high: float):
        self.step = step_of(high - low)
        self.low, self.high = (
            math.floor(low / self.step) * self.step,
            math.ceil(high / self.step - 1e-9) * self.step,
        )
        self.last = last

    def x(self, at: float) -> float:
        return LEFT + at / self.last * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def lines(self) -> list[str]:
        """Draw the grid, and the numbers beside it."""
        found, step = [], step_of(self.last)
        for i in range(round((self.high - self.low) / self.step) + 1):
            value = self.low + i * self.step
            y = self.y(value)
            found.append(
                f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" '
                f'stroke="#ddd"/>{text(LEFT - 5, y + 4, f"{value:g}", "end")}'
            )
        for i in range(int(self.last / step + 1e-9) + 1):
            found.append(text(self.x(i * step), HEIGHT - BOTTOM + 14, f"{i * step:g}", "middle"))
        return found


def step_of(span: float) -> float:
    """Return a round step that divides the span into four to eight or so."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(
        float(f"{factor * power:.6g}") for factor in (1, 2, 5, 10) if factor * power >= span / 8
    )


def _drawn(curve: Curve, axes: _Axes, colour: str) -> list[str]:
    def path(values: np.ndarray, order: slice = slice(None)) -> str:
        points = zip(curve.rounds[order].tolist(), values[order].tolist(), strict=True)
        return " ".join(f"{axes.x(x):.0f},{axes.y(y):.1f}" for x, y in points)

    both = f"{path(curve.high)} {path(curve.low, slice(None, None, -1))}"
    band = f'<polygon clip-path="url(#inside)" points="{both}" fill="{colour}" opacity=".15"/>'
    line = (
        f'<polyline clip-path="url(#inside)" points="{path(curve.mean)}" fill="none" '
        f'stroke="{colour}" stroke-width="1.6"/>'
    )
    return [band, line] if curve.seeds > 1 else [line]


def _draw_labels(labels: list[tuple[float, str, str]]) -> list[str]:
    """Draw the names beside the ends of their curves, each below the one before."""
    found, least = [], float(TOP)
    room = HEIGHT - BOTTOM - 13 * len(labels)
    for at, (y, name, colour) in enumerate(sorted(labels)):
        y = min(max(y, least), room + 13 * (at + 1))
        least = y + 13
        found.append(text(WIDTH - RIGHT + 8, y + 4, name, fill=colour))
    return found


def text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 11, fill: str = "#333"
) -> str:
    """Words of a figure."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{fill}">{html.escape(words)}</text>'
    )
