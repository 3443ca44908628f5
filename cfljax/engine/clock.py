"""HOST. Time that chunks of rounds take: what an evaluation costs, and how many rounds the next chunk may have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cfljax.devices import distributed
from cfljax.lazy import jax

CHUNK_SECONDS = 2.0  # Seconds that a chunk may take, roughly
CHEAP, TRIES = 0.05, 5
"""An evaluation of less than CHEAP seconds is timed TRIES times, and the least time counts: one may be mostly noise."""
Out = TypeVar("Out")


class Clock:
    """Time in chunks, added to the time of earlier starts: of evaluations, and the rest, which is training."""

    def __init__(self, total: float = 0.0, evaluation: float = 0.0) -> None:
        self.total, self.evaluation = total, evaluation
        self.per_round: float | None = None

    def time(self, rounds: int, f: Callable[..., Out], *args: object) -> Out:
        """Call f, a chunk of this number of rounds, and add its time to the total."""
        begin = time.perf_counter()
        result = jax.block_until_ready(f(*args))
        spent = time.perf_counter() - begin
        self.total += spent
        if rounds:
            self.per_round = spent / rounds
        return result

    def price(self, f: Callable[..., Out], *args: object) -> Out:
        """Call f, an evaluation: once to warm up, then timed."""
        result = jax.block_until_ready(f(*args))
        prices: list[float] = []
        while not prices or distributed.agree(len(prices) < TRIES and prices[-1] < CHEAP):
            begin = time.perf_counter()
            result = jax.block_until_ready(f(*args))
            prices.append(time.perf_counter() - begin)
        self.evaluation = self.total = min(prices)
        return result

    def rounds_ahead(self) -> int:
        """Return the number of rounds of the next chunk; a program on the device cannot be interrupted."""
        return 1 if self.per_round is None else max(1, int(CHUNK_SECONDS / max(self.per_round, 1e-6)))

    def split(self, evaluations: int) -> tuple[float, float]:
        """Return (seconds of training, seconds of evaluation)."""
        evaluate = min(self.evaluation * evaluations, self.total)
        return self.total - evaluate, evaluate
