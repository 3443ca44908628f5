"""Enters: the methods over several settings. Leaves: the picture of their performance profiles: on
which share of the settings a method is close to the best one."""

from __future__ import annotations

import numpy as np

from cfljax.report.critical_difference import MARGIN, WIDTH, Picture, Stroke, Word
from cfljax.report.over_settings import OverSettings
from cfljax.results.statistics import performance_profile

# The most methods that are drawn, the best ones: more colours cannot be told apart
MAX_DRAWN_PROFILES = 8
# Where the axes are, in pixels: the curves are between LEFT and the legend
LEFT = 52.0
LEGEND_WIDTH = 190.0
# In a narrower picture the legend has this share of it
LEGEND_SHARE = 0.42
LETTER_WIDTH = 6.2
TOP = 16.0
BOTTOM = 200.0
# The height of a line of the legend
LEGEND_ROW = 18.0
# The axis ends where every drawn method has reached all settings, at a multiple of this, in points
PARTS = 4


def picture(over: OverSettings, width: float = WIDTH) -> Picture:
    """Draw a curve for each of the best methods: the share of the settings (upwards) on which it is
    at most so many points (rightwards) behind the best method there."""
    drawn = over.methods[:MAX_DRAWN_PROFILES]
    beside = min(LEGEND_WIDTH, LEGEND_SHARE * width)
    end = width - beside
    letters = min(24, int((beside - MARGIN - 24) / LETTER_WIDTH))
    gaps = over.scores.max(axis=1, keepdims=True) - over.scores[:, : len(drawn)]
    last = float(PARTS * max(1, np.ceil(100 * gaps.max() / PARTS)))
    strokes = [Stroke(LEFT, BOTTOM, end, BOTTOM), Stroke(LEFT, TOP, LEFT, BOTTOM)]
    words = [
        Word(LEFT, BOTTOM + 34, "points behind the best method of the setting", "start"),
        Word(LEFT, TOP - 5, "share of the settings, %", "start"),
    ]

    def x(points: float) -> float:
        return LEFT + points / last * (end - LEFT)

    def y(share: float) -> float:
        return BOTTOM - share * (BOTTOM - TOP)

    for part in np.linspace(0, 1, PARTS + 1):
        words.append(Word(x(part * last), BOTTOM + 15, f"{part * last:.0f}"))
        words.append(Word(LEFT - 6, y(part) + 4, f"{100 * part:.0f}", "end"))
    # The best method is drawn last, over the others
    for i, method in reversed(list(enumerate(drawn))):
        behind = np.unique([0.0, *gaps[:, i]])
        shares = performance_profile(over.scores, behind)[:, i]
        for at, until, share, before in zip(
            behind, [*behind[1:], last / 100], shares, [0.0, *shares[:-1]], strict=True
        ):
            left, right = x(100 * at), x(100 * until)
            strokes.append(Stroke(left, y(before), left, y(share), width=1.8, colour=i))
            strokes.append(Stroke(left, y(share), right, y(share), width=1.8, colour=i))
        row = TOP + LEGEND_ROW * (i + 0.5)
        strokes.append(Stroke(end + MARGIN, row, end + MARGIN + 18, row, width=1.8, colour=i))
        words.append(Word(end + MARGIN + 24, row + 4, method.name[:letters], "start"))
    if len(drawn) < len(over.methods):
        row = TOP + LEGEND_ROW * (len(drawn) + 0.5)
        rest = f"the best {len(drawn)} of {len(over.methods)}"
        words.append(Word(end + MARGIN, row + 4, rest, "start"))
    return Picture(strokes, words, BOTTOM + 44, width)
