"""HOST. Choose how many clients an accelerator trains side by side, and how many updates are held at once.

Clients that train side by side all wait for the one with the most steps. If fewer train at a time, and clients of about equal work
train together, they wait little. But then more steps are done one after another, and each step has a fixed cost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MIN_LANES = 128  # At least this number of clients train side by side: fewer would not keep an accelerator busy
MAX_HELD_BYTES = 1 << 28  # If the updates of all participants have at most this number of bytes, they are held at once
BLOCK_BYTES = 1 << 26  # Otherwise participants train in blocks whose updates have about this number of bytes


class Packed(NamedTuple):
    """The cost of a round in which a fixed number of clients train side by side at a time."""

    in_a_row: int  # The number of steps that are done one after another
    computed: int  # The number of steps of single clients that are computed, including those of clients that wait


def typical_steps(steps: np.ndarray, participants: int) -> np.ndarray:
    """Return typical steps of a round's S participants, i64[S], descending, as quantiles of the steps i64[C] of all clients."""
    at = ((np.arange(participants) + 0.5) / participants * len(steps)).astype(np.int64)
    return np.sort(steps)[::-1][at]


def pack(steps: np.ndarray, width: int, block: int = 0) -> Packed:
    """Compute the cost of a round of clients with these steps i64[S], descending, of which `width` train at a time. `block`: they
    are divided into blocks of this number first. A width of 0 means all clients of a block, a block of 0 all clients."""
    number = len(steps)
    block = min(block or number, number)
    width = min(width or block, block)
    in_a_row = int(steps[np.arange(number) % block % width == 0].sum())
    return Packed(in_a_row, in_a_row * width)


def choose_width(steps: np.ndarray, block: int = 0) -> int:
    """Choose the number of clients to train at a time in each block of participants; 0: all of the block. Candidates are MIN_LANES
    and larger even parts of a block. The best candidate has the smallest sum of two ratios: its steps in a row to the steps of
    training all at once, and its computed steps to the clients' real steps. With small parts, neither ratio is much above 2."""
    number = min(block or len(steps), len(steps))
    at_once, real = pack(steps, 0, block).in_a_row, int(steps.sum())

    def price(width: int) -> float:
        round_ = pack(steps, width, block)
        return round_.in_a_row / max(at_once, 1) + round_.computed / max(real, 1)

    even = (-(-number // int(2 ** (i / 2))) for i in range(2, 40))
    return min((0, *(width for width in (*even, MIN_LANES) if MIN_LANES <= width < number)), key=price)


def choose_block(participants: int, size: int) -> int:
    """Return the number of participants in a block, for methods that need only sums of updates f32[size]; 0: all at once."""
    return 0 if 4 * participants * size <= MAX_HELD_BYTES else max(8, BLOCK_BYTES // (4 * size))
