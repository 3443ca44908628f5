"""What a cell of a published table stands for, taken from one run: a summary number, a point of a curve, the round in which a
curve reaches a value, a statistic over rounds, a diagnostic, how two diagnostics are related, or a cluster's accuracy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cfljax.errors import SpecError, suggest
from cfljax.registry.options import show
from cfljax.results.result import Result
from cfljax.store import QUANTITIES

OVER: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "variance": np.var,
    "median": np.median,
    "max": np.max,
    "min": np.min,
    "last": lambda values: values[-1],
}
WHICH: dict[str, Callable[..., Any]] = {"best": max, "worst": min}


@dataclasses.dataclass(frozen=True)
class Take:
    """One of `summary`, `history` with `at`, `over` or `reaches`, `diag`, a `correlation` of two diagnostics, or `cluster`."""

    summary: str = ""
    history: str = ""
    at: int | None = None
    over: str = ""
    reaches: float | None = None
    diag: str = ""
    correlation: tuple[str, ...] = ()
    cluster: str = ""

    @property
    def lower_is_better(self) -> bool:
        """Rounds until something is reached."""
        return self.reaches is not None

    def of(self, run: Result, clusters_of: Result | None = None) -> float:
        """The number of a run, NaN where it has none; inf where a curve never reaches the value. `clusters_of`: the run whose
        best or worst cluster `cluster` means."""
        if self.summary:
            value = run.summary.get(self.summary)
            return math.nan if value is None else float(value)
        if self.history:
            return self._of_curve(run.history)
        if self.diag:
            return _mean(run.diag.get(f"{run.method}/{self.diag}"))
        if self.correlation:
            return _correlation(*(run.diag.get(f"{run.method}/{name}") for name in self.correlation))
        return _cluster_accuracy(run.client_accuracy, clusters_of, WHICH[self.cluster])

    def _of_curve(self, history: dict[str, np.ndarray]) -> float:
        rounds, curve = history.get("round"), history.get(self.history)
        if rounds is None or curve is None or curve.shape != rounds.shape:
            return math.nan
        if self.at is not None:
            at = np.flatnonzero(rounds == self.at)
            return float(curve[at[0]]) if len(at) else math.nan
        trained = rounds >= 1
        if self.reaches is not None:
            reached = np.flatnonzero(trained & (curve.astype(np.float32) >= np.float32(self.reaches)))
            return float(rounds[reached[0]]) if len(reached) else math.inf
        values = curve[trained & np.isfinite(curve)].astype(np.float64)
        return float(OVER[self.over](values)) if len(values) else math.nan


def _mean(values: np.ndarray | None) -> float:
    return math.nan if values is None or not np.size(values) else float(np.mean(values))


def _correlation(one: np.ndarray | None, other: np.ndarray | None) -> float:
    """Pearson's, over the pairs of different clients of two matrices [n, n]."""
    if one is None or other is None or one.shape != other.shape or one.ndim != 2:
        return math.nan
    pairs = np.triu_indices(len(one), 1)
    return float(np.corrcoef(one[pairs], other[pairs])[0, 1])


def _cluster_accuracy(accuracy: np.ndarray | None, of: Result | None, which: Callable[..., Any]) -> float:
    """The mean accuracy of the clients of a cluster of the run `of`: its best or its worst, by its own clients' mean. Two runs
    asked about it speak of the same clients."""
    own, labels = (None, None) if of is None else (of.client_accuracy, of.labels)
    if accuracy is None or own is None or labels is None or not accuracy.shape == own.shape == labels.shape:
        return math.nan
    known = np.isfinite(accuracy) & np.isfinite(own) & (labels >= 0)
    members = [known & (labels == k) for k in np.unique(labels[known])]
    return float(np.mean(accuracy[which(members, key=lambda chosen: np.mean(own[chosen]))])) if members else math.nan


def read_take(value: Any, where: str) -> Take:
    """A summary quantity's name, or a table of `Take`'s fields; SpecError for anything else."""
    if isinstance(value, str):
        value = {"summary": value}
    if not isinstance(value, dict):
        raise SpecError(f"{where} = {show(value)}: must be a quantity or a table")
    known = {field.name for field in dataclasses.fields(Take)}
    for key in value:
        if key not in known:
            raise SpecError(f"{where}.{key}: there is no such key" + suggest(key, known))
    kinds = [key for key in ("summary", "history", "diag", "correlation", "cluster") if key in value]
    if len(kinds) != 1:
        raise SpecError(f"{where}: give one of summary, history, diag, correlation and cluster")
    _word(value, "summary", [name for name in QUANTITIES if name != "round_to_target"], where)  # that is history, with reaches
    _word(value, "over", OVER, where)
    _word(value, "cluster", WHICH, where)
    if kinds == ["history"] and sum(key in value for key in ("at", "over", "reaches")) != 1:
        raise SpecError(f"{where}: history needs one of at (a round), over (a statistic) and reaches (a value)")
    pair = value.get("correlation", ())
    if kinds == ["correlation"] and (not isinstance(pair, list) or len(pair) != 2):
        raise SpecError(f"{where}.correlation = {show(pair)}: must be the names of two diagnostics")
    return Take(**{**value, "correlation": tuple(pair)})


def _word(table: dict[str, Any], key: str, words: Any, where: str) -> None:
    if key in table and table[key] not in words:
        raise SpecError(f"{where}.{key} = {show(table[key])}: unknown" + suggest(str(table[key]), words))
