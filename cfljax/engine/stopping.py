"""HOST. Runs that end before their last round, because they get no better."""

from __future__ import annotations

import numpy as np

from cfljax.engine.resume import Rows
from cfljax.engine.settings import Stop


class Watch:
    """Which of R runs go on, from the rows of their history as they come."""

    def __init__(self, stop: Stop | None, runs: int):
        self.stop = stop
        self.best = np.full(runs, -np.inf)
        """The best value of each run so far, times the sign."""
        self.since = np.zeros(runs, np.int64)
        """The round of that value."""
        self.ended = np.full(runs, -1, np.int64)
        """The round after which each run has ended; −1: it goes on."""
        self.evaluations = np.zeros(runs, np.int64)
        """How many rows of the history each run has."""

    @property
    def live(self) -> np.ndarray:
        """bool[R]: the runs that go on."""
        return self.ended < 0

    def see(self, rows: Rows) -> np.ndarray:
        """Record rows [R, T, …]; return i64[n]: the runs that end with them. A metric that is not finite counts as the worst."""
        before = self.live
        for at, now in enumerate(rows["round"][0].tolist()):
            self.evaluations += self.live
            if self.stop is not None:
                value = self.stop.sign * rows[self.stop.metric][:, at].astype(np.float64)
                better = self.live & np.isfinite(value) & (value > self.best)
                self.best[better], self.since[better] = value[better], now
                self.ended[self.live & (now - self.since >= self.stop.patience)] = now
        return np.flatnonzero(before & ~self.live)

    def shares(self, rounds: int, runs: int) -> list[float]:
        """Return each run's share of the time, for the first `runs` runs."""
        done = np.where(self.live, max(rounds, 1), np.maximum(self.ended, 1))[:runs]
        return [float(each) for each in done / done.sum()]
