"""HOST. Clients that never train: what a newcomer would get of a federation whose training is over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfljax.errors import SpecError
from cfljax.types.federation import NEVER

_TAG = 0x6E6577


def draw_newcomers(sizes: Sequence[int], share: float, seed: int) -> np.ndarray:
    """bool[C]: which clients are newcomers: this share of those with training samples (`sizes` i[C]), rounded, at least one."""
    training = np.flatnonzero(np.asarray(sizes) > 0)
    number = max(1, round(share * len(training)))
    if number >= len(training):
        raise SpecError(f"data.new_clients.share = {share}: {len(training)} clients have training samples, and none would train")
    new = np.zeros(len(sizes), bool)
    new[np.random.default_rng([seed, _TAG]).permutation(training)[:number]] = True
    return new


def with_shots(train: Sequence[np.ndarray], new: np.ndarray, shots: int, seed: int) -> list[np.ndarray]:
    """The training rows of each client: newcomers have `shots` of theirs, drawn at random, or all if they have fewer."""

    def few(at: int, rows: np.ndarray) -> np.ndarray:
        return rows[np.sort(np.random.default_rng([seed, _TAG, at]).permutation(len(rows))[:shots])]

    return [few(at, np.asarray(rows)) if new[at] else rows for at, rows in enumerate(train)]


def arriving(arrive: np.ndarray, new: np.ndarray) -> np.ndarray:
    """i32[C]: the rounds in which clients arrive; newcomers never do."""
    return np.where(new, NEVER, arrive).astype(np.int32)
