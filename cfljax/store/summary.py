"""What the quantities of a summary are computed from: the curves of a run, and when these reach
what."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

# Runs with at least this many evaluations are judged by the mean of the last ten
MIN_LAST10 = 50
RECOVERY_MARGIN = 0.01
"""A run has recovered from a change when its accuracy is at most this much below the last
evaluation's before it."""


class RunCurves:
    """The curves of a run, f64[E] each, and what quantities read off them.

    Args:
        history: `round` and, if known, `accuracy, val_accuracy, loss, ari`, …, [E] each, and
            `bytes_up, bytes_down`, the sums since the start.
        client_accuracy: f32[C] at the end, NaN for clients without test samples.
        target: an accuracy; None: nothing reaches it.
        spans: (first, last round) of each change of the data, if these are known.
        score: what stands in the place of "accuracy" in the names of curves."""

    def __init__(
        self,
        history: Mapping[str, ArrayLike],
        client_accuracy: ArrayLike | None = None,
        target: float | None = None,
        spans: Sequence[tuple[int, int]] = (),
        score: str = "accuracy",
    ):
        self.curves = {
            name: np.asarray(values, np.float64).reshape(-1) for name, values in history.items()
        }
        self.rounds = self.curves.get("round", np.zeros(0))
        self.clients = _keep_finite(
            np.asarray([] if client_accuracy is None else client_accuracy, np.float64)
        )
        # In float32, as accuracies are measured: 70 of 100 right must reach a target of 0.7
        self.score = score
        high = self[score].astype(np.float32) >= np.float32(np.inf if target is None else target)
        self.reached = np.flatnonzero(high & (self.rounds >= 1))
        self.spans = spans

    def __getitem__(self, curve: str) -> np.ndarray:
        """Return a curve; NaN throughout if it is unknown. `bytes`: of both directions."""
        if curve == "bytes":
            return self["bytes_up"] + self["bytes_down"]
        return self.curves.get(curve, np.full(len(self.rounds), np.nan))

    def has(self, curve: str, evaluations: int) -> bool:
        """Return whether the curve ("": any) has a finite value, and so many evaluations followed
        round 0."""
        known = not curve or bool(np.isfinite(self[curve]).any())
        return known and int(np.sum(self.rounds >= 1)) >= evaluations

    def maximum(self, curve: str) -> float:
        """Return the highest value after round 0."""
        return _apply_finite(np.max, self[curve][self.rounds >= 1])

    def last(self, curve: str) -> float:
        """Return the last value; NaN if there is none."""
        values = self[curve]
        return float(values[-1]) if len(values) else math.nan

    def count(self, curve: str) -> int | float:
        """Return the last value of a curve of counts; NaN if there is none."""
        return _to_int(self.last(curve))

    def count_or_zero(self, curve: str) -> int | float:
        """Do as `count`; 0 for a run without evaluations."""
        return self.count(curve) if len(self.rounds) else 0

    def last10(self, curve: str) -> float:
        """Average the last ten values after round 0."""
        return _apply_finite(np.mean, self[curve][self.rounds >= 1][-10:])

    def at_best(self, curve: str) -> float:
        """Return the value at the evaluation of the highest validation accuracy, in a tie of the
        least loss, then at the first; NaN without validation samples."""
        accuracy = self[f"val_{self.score}"]
        loss = np.nan_to_num(self["val_loss"], nan=np.inf)
        known = np.flatnonzero(np.isfinite(accuracy)).tolist()
        best = sorted(known, key=lambda at: (-accuracy[at], loss[at], at))[:1]
        return _apply_finite(np.mean, self[curve][best])

    def count_at_best(self, curve: str) -> int | float:
        """Do as `at_best` for a curve of counts."""
        return _to_int(self.at_best(curve))

    def at_target(self, curve: str) -> float | None:
        """Return the value at the first evaluation that reaches the target; None: none does."""
        return float(self[curve][self.reached[0]]) if len(self.reached) else None

    def count_at_target(self, curve: str) -> int | float | None:
        """Do as `at_target` for a curve of counts."""
        value = self.at_target(curve)
        return None if value is None else _to_int(value)

    def worst_clients(self, curve: str) -> float:
        """Average the worst tenth of the clients' accuracies; without these, return the curve's
        end."""
        return worst_tenth(self.clients) if len(self.clients) else self.last(curve)

    def spread_of_clients(self, curve: str) -> float:
        """Return the standard deviation of the clients' accuracies; without these, the curve's
        end."""
        return float(self.clients.std()) if len(self.clients) else self.last(curve)

    @functools.cached_property
    def changes(self) -> Sequence[tuple[int, int]]:
        """(first, last round) of each change of the data until the end; of a file of changes, each
        evaluation that sees clients changed is one."""
        seen = self.rounds[self["groups_changed"] > 0].astype(int).tolist()
        spans = [span for span in self.spans if span[0] <= self.rounds[-1]]
        return spans or [(at, at) for at in seen]

    def in_drift(self, curve: str) -> float:
        """Average the values since the first change of the data."""
        begin = self.changes[0][0] if self.changes else math.inf
        return _apply_finite(np.mean, self[curve][self.rounds >= begin])

    def recovery(self, curve: str) -> float | None:
        """Average over the changes the rounds from the last round of a change to the first
        evaluation that has recovered; None if from some change the run has not recovered before the
        next one or its end."""
        ends = [*(begin for begin, _ in self.changes[1:]), math.inf]
        found = [
            self._count_recovery(self[curve], *span, end)
            for span, end in zip(self.changes, ends, strict=False)
        ]
        known = [each for each in found if each is not None]
        return float(np.mean(known)) if known and len(known) == len(found) else None

    def _count_recovery(
        self, accuracy: np.ndarray, begin: int, last: int, end: float
    ) -> int | None:
        """Count the rounds after `last` until the accuracy is as before `begin`; None if that is
        not before round `end`."""
        before = accuracy[self.rounds < begin]
        if not len(before) or not math.isfinite(before[-1]):
            return None
        # Accuracies are float32: without the small margin a tie may count as below
        high = accuracy >= before[-1] - RECOVERY_MARGIN - 1e-6
        reached = self.rounds[high & (self.rounds >= last) & (self.rounds < end)]
        return int(reached[0]) - last if len(reached) else None


def worst_tenth(accuracy: np.ndarray) -> float:
    """Average the ⌈C/10⌉ lowest finite accuracies f32[C]; NaN without any."""
    finite = np.sort(_keep_finite(np.asarray(accuracy, np.float64)))
    return float(finite[: math.ceil(len(finite) / 10)].mean()) if len(finite) else math.nan


def _apply_finite(statistic: Callable[[np.ndarray], float], values: np.ndarray) -> float:
    """Compute the statistic of the finite values; NaN without any."""
    finite = _keep_finite(values)
    return float(statistic(finite)) if len(finite) else math.nan


def _keep_finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _to_int(value: float) -> int | float:
    return int(value) if math.isfinite(value) else value
