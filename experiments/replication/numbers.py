"""Enters: numbers of a verdict. Leaves: their text: with a sign, as a share that is saved, and with
the ends of their interval."""

from __future__ import annotations

import math
from collections.abc import Callable


def plain(value: float) -> str:
    """Three digits; `never` for a round that is not reached."""
    return "never" if math.isinf(value) else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def signed(value: float) -> str:
    """Format the number with its sign."""
    return ("+" if value >= 0 else "−") + plain(abs(value))


def fewer(share: float, word: str) -> str:
    """Format a share that is saved: `25 % fewer`, or `6 % more` where it is below 0."""
    if not -10 < share < math.inf:
        return "far more"
    near = f"{abs(100 * share):.1f}" if 0.95 < share < 0.9995 else f"{abs(100 * share):.0f}"
    return f"{near} % {word if share >= 0 else 'more'}"


def between(ends: tuple[float, ...], written: Callable[[float], str]) -> str:
    """Format an interval in brackets; "" where it has no ends."""
    low, high = ends
    return "" if math.isnan(low) or math.isinf(low) else f" [{written(low)}, {written(high)}]"
