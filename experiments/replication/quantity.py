"""Enters: one run. Leaves: the number that a cell of a published table stands for: a summary
quantity, a point of a curve, the round in which a curve reaches a value, a statistic over rounds
(`change`: the mean of |a round − the one before|) or, with `to`, over the rounds up to that one, a
diagnostic, the correlation of two diagnostics, how well a round's participants are clustered, or
the accuracy of a cluster."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from cfljax.engine.metrics import adjusted_rand, contingency, purity
from cfljax.errors import SpecError
from cfljax.registry.options import Value, check, option, show
from cfljax.results.result import Result
from cfljax.store.quantities import QUANTITIES, number

OVER: dict[str, Callable[[np.ndarray], np.floating]] = {
    "mean": np.mean,
    "variance": np.var,
    "median": np.median,
    "max": np.max,
    "min": np.min,
    "last": lambda values: values[-1],
    "change": lambda values: (
        np.mean(np.abs(np.diff(values))) if len(values) > 1 else np.float64("nan")
    ),
}
NO_FRACTIONS = (
    "loss",
    "train_loss",
    "val_loss",
    "loss_last",
    "discrepancy",
    "clusters",
    "clusters_last",
    "rounds",
    "bytes_up",
    "bytes_down",
)
"""Quantities that stay as they are where the published unit is per cent."""
FLAT = 0.01
"""A curve that rises by less in half of its rounds is flat."""
AGREEMENT = {"ari": adjusted_rand, "purity": purity}
WHICH = ("best", "middle", "worst", "gap")
"""Clusters by their accuracy, and how far the best is from the worst."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One of `summary`, `history` (with `at`, `reaches`, or `over` and perhaps `to`), `diag`,
    `timing`, `correlation` (of two diagnostics), `participants` and `cluster`."""

    summary: str = option(
        "",
        choices=tuple(
            name
            for name, each in QUANTITIES.items()
            if each.compute and each.frame == "always" and not each.reaches
        ),
    )
    """A history with `reaches` gives the rounds to a target."""
    history: str = ""
    at: int | None = None
    over: str = option("", choices=tuple(OVER))
    to: int | None = option(None, low=1)
    reaches: float | None = None
    diag: str = ""
    timing: str = ""
    """A part of the run's time, in seconds."""
    correlation: tuple[str, ...] = ()
    participants: str = option("", choices=tuple(AGREEMENT))
    """How the clusters of a round's participants agree with their true groups, the mean over
    rounds."""
    cluster: str = option("", choices=WHICH)

    def check(self, where: str) -> None:
        """SpecError unless the fields that are given together make a quantity; `where` is its key
        in the file."""
        given = [
            bool(kind)
            for kind in (
                self.summary,
                self.history,
                self.diag,
                self.timing,
                self.correlation,
                self.participants,
                self.cluster,
            )
        ]
        if sum(given) != 1:
            raise SpecError(
                f"{where}: give one of summary, history, diag, timing, correlation, participants "
                "and cluster"
            )
        if (
            self.history
            and (self.at is not None) + bool(self.over) + (self.reaches is not None) != 1
        ):
            raise SpecError(
                f"{where}: history needs one of at (a round), over (a statistic) and reaches "
                "(a value)"
            )
        if self.to is not None and not self.over:
            raise SpecError(
                f"{where}.to = {self.to}: needs over (a statistic), of which it is the last round"
            )
        if self.correlation and len(self.correlation) != 2:
            raise SpecError(
                f"{where}.correlation = {show(self.correlation)}: must be the names of two "
                "diagnostics"
            )

    @property
    def lower_is_better(self) -> bool:
        """True for the round in which a curve reaches a value."""
        return self.reaches is not None

    @property
    def fraction(self) -> bool:
        """Whether it is a fraction, which may be published in per cent."""
        plain = self.reaches is None and not self.timing
        return plain and (self.summary or self.history) not in NO_FRACTIONS

    def of(self, run: Result, clusters_of: Result | None = None) -> float:
        """Measure a run; NaN if it has none, inf if its curve never reaches the value.
        `clusters_of`: the run whose best or worst cluster is meant by `cluster`."""
        if self.summary:
            return number(run.summary.get(self.summary))
        if self.timing:
            return number(run.record["timings"].get(self.timing))
        if self.history:
            return self._of_curve(run.history)
        if self.diag:
            values = run.diag.get(f"{run.method}/{self.diag}")
            return math.nan if values is None or not np.size(values) else float(np.mean(values))
        if self.correlation:
            return _correlation(
                *(run.diag.get(f"{run.method}/{name}") for name in self.correlation)
            )
        if self.participants:
            return _agreement(run, self.participants)
        return _cluster_accuracy(run.client_accuracy, clusters_of, self.cluster)

    def flat(self, run: Result) -> bool:
        """Whether a curve with `reaches` had stopped rising: the second half of its rounds is at
        most FLAT above the best of the first."""
        rounds, curve = run.history.get("round"), run.history.get(self.history)
        if rounds is None or curve is None or not (rounds >= 1).any():
            return False
        early, late = (
            (rounds >= 1) & half for half in (rounds <= rounds[-1] / 2, rounds > rounds[-1] / 2)
        )
        if not (early.any() and late.any()):
            return False
        return bool(np.nanmax(curve[late]) <= np.nanmax(curve[early]) + FLAT)

    def _of_curve(self, history: dict[str, np.ndarray]) -> float:
        rounds, curve = history.get("round"), history.get(self.history)
        if rounds is None or curve is None or curve.shape != rounds.shape:
            return math.nan
        if self.at is not None:
            at = np.flatnonzero(rounds == self.at)
            return float(curve[at[0]]) if len(at) else math.nan
        trained = rounds >= 1
        if self.reaches is not None:
            reached = np.flatnonzero(
                trained & (curve.astype(np.float32) >= np.float32(self.reaches))
            )
            return float(rounds[reached[0]]) if len(reached) else math.inf
        if self.to is not None:
            trained &= (rounds <= self.to) & (
                self.to <= rounds[-1]
            )  # a run that ended before has no such number
        values = curve[trained & np.isfinite(curve)].astype(np.float64)
        return float(OVER[self.over](values)) if len(values) else math.nan


def _correlation(one: np.ndarray | None, other: np.ndarray | None) -> float:
    """Pearson's correlation of two matrices f32[n, n], over the pairs of different clients."""
    if one is None or other is None or one.shape != other.shape or one.ndim != 2:
        return math.nan
    pairs = np.triu_indices(len(one), 1)
    return float(np.corrcoef(one[pairs], other[pairs])[0, 1])


def _agreement(run: Result, how: str) -> float:
    """Return how the clusters of each evaluated round's participants agree with their true groups,
    the mean over rounds. Those without a cluster are left out."""
    ids, labels = (
        run.diag.get(f"{run.method}/{name}") for name in ("participants", "participant_labels")
    )
    if ids is None or labels is None or run.groups is None:
        return math.nan
    trained = run.history["round"] >= 1
    group = run.groups[-1]
    table = contingency(
        labels[trained], group[ids[trained]], int(labels.max()) + 1, int(group.max()) + 1
    )
    return float(np.nanmean(AGREEMENT[how](table)))


def _cluster_accuracy(accuracy: np.ndarray | None, of: Result | None, which: str) -> float:
    """Return the mean of accuracy f32[C] over the clients of the best, middle or worst cluster of
    the run `of`. Which cluster it is depends on the accuracies in the run `of` alone, so that
    different runs are measured on the same clients. The gap: from the lowest to the highest mean of
    this run."""
    other, labels = (None, None) if of is None else (of.client_accuracy, of.labels)
    if (
        accuracy is None
        or other is None
        or labels is None
        or not accuracy.shape == other.shape == labels.shape
    ):
        return math.nan
    known = np.isfinite(accuracy) & np.isfinite(other) & (labels >= 0)
    members = [known & (labels == k) for k in np.unique(labels[known])]
    if not members:
        return math.nan
    own = [float(np.mean(accuracy[chosen])) for chosen in members]
    if which == "gap":
        return max(own) - min(own)
    ranked = np.argsort([-np.mean(other[chosen]) for chosen in members])
    return own[ranked[{"best": 0, "middle": len(members) // 2, "worst": -1}[which]]]


def read_quantity(value: Value, where: str) -> Quantity:
    """Read the quantity that a file means by the name of a summary quantity, or by a table of the
    fields of `Quantity`. SpecError for anything else; `where` is its key in the file."""
    table = {"summary": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        raise SpecError(f"{where} = {show(value)}: must be a quantity or a table")
    return check(Quantity, table, where)
