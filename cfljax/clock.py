"""HOST. Time that chunks of rounds take: what an evaluation costs, and how many rounds the next chunk may have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

LOOK_EVERY = 2.0
"""Seconds that a chunk may take, roughly."""


class Clock:
    """Time in chunks. A chunk without rounds only evaluates, which prices an evaluation; the rest is training."""

    def __init__(self) -> None:
        self.evaluation = self.total = 0.0
        self.per_round: float | None = None

    def time(self, rounds: int, f: Callable[..., Any], *args: Any) -> Any:
        """The result, ready."""
        begin = time.perf_counter()
        result = jax.block_until_ready(f(*args))
        spent = time.perf_counter() - begin
        self.total += spent
        if rounds:
            self.per_round = spent / rounds
        else:
            self.evaluation = spent
        return result

    def rounds_ahead(self) -> int:
        """As many rounds as fit between two looks: a program on the device cannot be interrupted."""
        return 1 if self.per_round is None else max(1, int(LOOK_EVERY / max(self.per_round, 1e-6)))

    def split(self, evaluations: int) -> tuple[float, float]:
        """(seconds of training, seconds of evaluation)."""
        evaluate = min(self.evaluation * evaluations, self.total)
        return self.total - evaluate, evaluate
