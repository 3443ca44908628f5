"""HOST. A part of each client's training samples that nobody trains on, by which settings are chosen and runs are stopped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEWEST = 3
"""A client with fewer training samples keeps all of them for training."""
_TAG = 0x76616C69


def hold_out(train: Sequence[np.ndarray], share: float, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(what each client trains on, its validation samples): of its rows i64[n_i] this share, drawn at random, rounded, at least one
    and never all. Rows keep their order. What a client gives depends on its own rows and on its position alone."""
    pairs = [_parted(np.asarray(rows), share, np.random.default_rng([seed, _TAG, at])) for at, rows in enumerate(train)]
    return [kept for kept, _ in pairs], [held for _, held in pairs]


def _parted(rows: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if len(rows) < FEWEST:
        return rows, rows[:0]
    number = min(max(1, round(share * len(rows))), len(rows) - 1)
    held = np.zeros(len(rows), bool)
    held[rng.permutation(len(rows))[:number]] = True
    return rows[~held], rows[held]
