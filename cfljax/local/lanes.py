"""HOST. How many clients an accelerator trains side by side.

Side by side all wait for the one with the most steps. With fewer at a time, those of about equal work together, hardly anybody
waits; but there are more steps one after another, each of which has a price of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAST = 128
"""Fewer clients side by side would leave an accelerator idle, so at least this many are trained at a time."""


class Packed(NamedTuple):
    """A round in which a fixed number of clients train side by side at a time."""

    in_a_row: int
    """Steps one after another."""
    computed: int
    """Steps of single clients that are computed, those of clients that wait included."""


def typical(steps: np.ndarray, participants: int) -> np.ndarray:
    """i64[S], descending: the steps of a round's participants, spread as those of all clients i64[C] are."""
    at = ((np.arange(participants) + 0.5) / participants * len(steps)).astype(np.int64)
    return np.sort(steps)[::-1][at]


def packed(steps: np.ndarray, width: int, block: int = 0) -> Packed:
    """A round of clients with these steps i64[S], descending: `width` clients at a time, of each block of `block` clients. 0 stands
    for all clients of a block, and for one block."""
    number = len(steps)
    block = min(block or number, number)
    width = min(width or block, block)
    in_a_row = int(steps[np.arange(number) % block % width == 0].sum())
    return Packed(in_a_row, in_a_row * width)


def best(steps: np.ndarray, block: int = 0) -> int:
    """How many clients to train at a time of each block of participants; 0: all. Candidates are LEAST and even parts of a block
    that are larger. The best one has the least sum of two ratios: its steps in a row to those of training all at once, and its
    computed steps to the clients' real steps. Where parts can be small enough, neither ratio is much above 2."""
    number = min(block or len(steps), len(steps))
    at_once, real = packed(steps, 0, block).in_a_row, int(steps.sum())

    def price(width: int) -> float:
        round_ = packed(steps, width, block)
        return round_.in_a_row / max(at_once, 1) + round_.computed / max(real, 1)

    even = (-(-number // int(2 ** (i / 2))) for i in range(2, 40))
    return min((0, *(width for width in (*even, LEAST) if LEAST <= width < number)), key=price)
