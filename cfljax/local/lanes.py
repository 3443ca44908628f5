"""HOST. How many clients an accelerator trains side by side.

Side by side all wait for the one with the most steps. With fewer at a time, those of about equal work together, hardly anybody
waits; but there are more steps one after another, each of which has a price of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAST = 128
"""Clients side by side that may leave an accelerator idle: as many are trained at a time, whatever their work."""


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


def packed(steps: np.ndarray, lanes: int) -> Packed:
    """The clients of `steps` i64[S], descending, `lanes` at a time; 0: all."""
    lanes = lanes or len(steps)
    in_a_row = int(steps[::lanes].sum())
    return Packed(in_a_row, in_a_row * lanes)


def best(steps: np.ndarray, most: int = 0) -> int:
    """How many at a time, 0 for all, but no more than `most` unless that is 0: what adds least to the steps in a row of all at
    once and to the steps that there are, as shares of them. Neither is more than doubled, about, whatever the clients' sizes."""
    fewest, real = packed(steps, 0).in_a_row, max(int(steps.sum()), 1)
    choices, lanes = [most if most < len(steps) else 0], most or len(steps)
    while lanes > LEAST:
        lanes = max(LEAST, -(-lanes // 2))
        choices.append(lanes)
    return min(choices, key=lambda lanes: packed(steps, lanes).in_a_row / max(fewest, 1) + packed(steps, lanes).computed / real)
