"""HOST. How many clients an accelerator trains side by side.

Side by side all wait for the one with the most steps. With fewer at a time, those of about equal work together, hardly anybody
waits; but there are more steps one after another, each of which has a price of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAST = 128
"""Clients side by side of which fewer would leave an accelerator idle: as many are trained at a time, whatever their work."""


class Packed(NamedTuple):
    """A round of clients, so many at a time."""

    in_a_row: int
    """Steps one after another."""
    computed: int
    """Clients' steps that are computed, those of clients that wait included."""


def typical(steps: np.ndarray, participants: int) -> np.ndarray:
    """i64[S], descending: the steps of a round's participants, spread as those of all clients i64[C] are."""
    at = ((np.arange(participants) + 0.5) / participants * len(steps)).astype(np.int64)
    return np.sort(steps)[::-1][at]


def packed(steps: np.ndarray, width: int, block: int = 0) -> Packed:
    """The clients of `steps` i64[S], descending, `width` at a time of each block of so many; 0: all."""
    number = len(steps)
    block = min(block or number, number)
    width = min(width or block, block)
    in_a_row = int(steps[np.arange(number) % block % width == 0].sum())
    return Packed(in_a_row, in_a_row * width)


def best(steps: np.ndarray, block: int = 0) -> int:
    """How many at a time of each block of participants, 0 for all: LEAST or an even part of them, of more, that adds least to
    the steps in a row of all at once and to the steps that there are, as shares of them. Where parts may be small enough neither
    is more than doubled, about."""
    number = min(block or len(steps), len(steps))
    at_once, real = packed(steps, 0, block).in_a_row, int(steps.sum())

    def price(width: int) -> float:
        found = packed(steps, width, block)
        return found.in_a_row / max(at_once, 1) + found.computed / max(real, 1)

    even = (-(-number // int(2 ** (i / 2))) for i in range(2, 40))
    return min((0, *(width for width in (*even, LEAST) if LEAST <= width < number)), key=price)
