"""HOST. Clients that never train: what a newcomer gets from a federation after its training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfljax.errors import SpecError

_TAG = 0x6E6577


def draw_newcomers(sizes: Sequence[int], share: float, seed: int) -> np.ndarray:
    """Draw which clients are newcomers, bool[C]: this share of those with training samples (`sizes` i[C]), at least one."""
    training = np.flatnonzero(np.asarray(sizes) > 0)
    number = max(1, round(share * len(training)))
    if number >= len(training):
        raise SpecError(f"data.new_clients.share = {share}: {len(training)} clients have training samples, and none would train")
    new = np.zeros(len(sizes), bool)
    new[np.random.default_rng([seed, _TAG]).permutation(training)[:number]] = True
    return new


def keep_shots(train: Sequence[np.ndarray], new: np.ndarray, shots: int, seed: int) -> list[np.ndarray]:
    """Reduce each newcomer's training rows to `shots` of them, drawn at random; a newcomer with fewer keeps all."""
    return [
        np.asarray(rows)[np.sort(np.random.default_rng([seed, _TAG, at]).permutation(len(rows))[:shots])] if new[at] else rows
        for at, rows in enumerate(train)
    ]
