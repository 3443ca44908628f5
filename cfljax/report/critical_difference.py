"""Enters: mean ranks over data sets. Leaves: the critical-difference picture (Demšar 2006) as lines
and words, and as SVG."""

from __future__ import annotations

import html
from typing import NamedTuple

from cfljax.results.statistics import Ranks

# Widths in pixels: of the usual picture, of its edge, and of the names on either side
WIDTH = 560.0
MARGIN = 14.0
NAMES_WIDTH = 150.0
# In a narrower picture the names have this share of it, on either side
NAMES_SHARE = 0.32
LETTER_WIDTH = 6.0
# Ranks that are closer are not all written
MIN_TICK_WIDTH = 11.0
# Letters of 11 pixels have 7.5 points
PIXELS_PER_INCH = WIDTH / 5.5
# Where the axis stands
AXIS = 46.0
# The heights of a name's row and of a bar
ROW = 17.0
BAR = 7.0
# Of more methods the best are drawn; the picture says how many there are
MAX_DRAWN_METHODS = 40


class Stroke(NamedTuple):
    """A line from one point to another, y downwards."""

    x1: float
    y1: float
    x2: float
    y2: float
    width: float = 1.0
    # One of the eight colours of curves; None: the colour of text
    colour: int | None = None


class Word(NamedTuple):
    """Text at a point; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "middle"


class Picture(NamedTuple):
    """What is drawn, and the height that it takes."""

    strokes: list[Stroke]
    words: list[Word]
    height: float
    width: float = WIDTH


def picture(ranks: Ranks, width: float = WIDTH) -> Picture:
    """Draw an axis of mean ranks with names (the better half left), bars over methods that do not
    differ, and the difference."""
    k = len(ranks.names)
    beside = min(NAMES_WIDTH, NAMES_SHARE * width)
    # A name has a mean rank behind it
    letters = int(beside / LETTER_WIDTH) - 3
    left = beside + MARGIN
    right = width - beside - MARGIN

    def x(rank: float) -> float:
        return left + (rank - 1) / (k - 1) * (right - left)

    shown = min(k, MAX_DRAWN_METHODS)
    step = 1 if (right - left) / k > MIN_TICK_WIDTH else 5
    # A number beside the last would be written over it
    ticks = [*(rank for rank in range(1, k, step) if k - rank > step / 2), k]
    strokes = [Stroke(x(1), AXIS, x(k), AXIS), *(Stroke(x(r), AXIS - 4, x(r), AXIS) for r in ticks)]
    words = [Word(x(rank), AXIS - 7, str(rank)) for rank in ticks]
    length = min(ranks.distance, k - 1.0)
    strokes += [
        Stroke(x(1), 16, x(1 + length), 16, 1.5),
        *(Stroke(end, 12, end, 20, 1.5) for end in (x(1), x(1 + length))),
    ]
    label = f"critical difference {ranks.distance:.2f}"
    end = x(1 + length) + 6
    # If the label does not fit behind its bar, it stands above
    fits = end + LETTER_WIDTH * len(label) < width
    words.append(Word(end, 20, label, "start") if fits else Word(width - 2, 9, label, "end"))
    groups = [
        (first, min(last, shown - 1)) for first, last in ranks.level_groups if first < shown - 1
    ]
    below = AXIS + 8 + BAR * len(groups)
    for at, (first, last) in enumerate(groups):
        y = AXIS + 6 + BAR * at
        strokes.append(Stroke(x(ranks.means[first]) - 3, y, x(ranks.means[last]) + 3, y, 3.0))
    half = (shown + 1) // 2
    for i in range(shown):
        on_left = i < half
        y = below + ROW * ((i if on_left else shown - 1 - i) + 0.7)
        end = left - 6 if on_left else right + 6
        strokes += [
            Stroke(x(ranks.means[i]), AXIS, x(ranks.means[i]), y),
            Stroke(x(ranks.means[i]), y, end, y),
        ]
        name = ranks.names[i]
        name = name if len(name) <= letters else name[: letters - 1] + "…"
        words.append(
            Word(
                end + (-4 if on_left else 4),
                y + 4,
                f"{name} {ranks.means[i]:.2f}",
                "end" if on_left else "start",
            )
        )
    if shown < k:
        words.append(Word(width / 2, below + ROW * (half + 0.7), f"the best {shown} of {k}"))
    height = below + ROW * (half + (1.4 if shown < k else 0.4))
    return Picture(strokes, words, height, width)


def svg(drawn: Picture, label: str = "critical differences") -> str:
    """Draw the picture as an SVG element in the colour of the text around it."""
    lines = [
        f'<line x1="{s.x1:.1f}" y1="{s.y1:.1f}" x2="{s.x2:.1f}" y2="{s.y2:.1f}" '
        f'stroke="{"currentColor" if s.colour is None else f"var(--c{s.colour})"}" '
        f'stroke-width="{s.width:g}"/>'
        for s in drawn.strokes
    ]
    lines += [
        f'<text x="{w.x:.1f}" y="{w.y:.1f}" text-anchor="{w.anchor}" '
        f'fill="currentColor">{html.escape(w.text)}</text>'
        for w in drawn.words
    ]
    size = f'viewBox="0 0 {drawn.width:.0f} {drawn.height:.0f}" width="{drawn.width:.0f}"'
    return (
        f'<svg {size} role="img" aria-label="{label}" font-size="11" '
        f'style="max-width:100%">{"".join(lines)}</svg>'
    )
