"""From the curves of a run to the numbers of its row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

# Runs with at least this many evaluations are judged by the mean of the last ten
MIN_LAST10 = 50
# Columns that come from a record's `timings`
SECONDS_COLUMNS = ("seconds_compile", "seconds_train", "seconds_eval")


def summarise(
    history: Mapping[str, ArrayLike],
    client_accuracy: ArrayLike | None = None,
    target: float | None = None,
) -> dict[str, float | int | None]:
    """Compute the numbers of QUANTITIES, `bytes_to_target`, with validation samples
    `accuracy_at_best_val` and `round_of_best_val`, and with a simulated clock `clock_s`, `device_s`
    and `clock_to_target`. The quantities that tables show beside an accuracy are averaged over the
    same evaluations: `ari_at_best_val` and others with validation samples, `ari_last10` and others
    after MIN_LAST10 evaluations. What is unknown is NaN.

    Args:
        history: `round` and, if known, `val_accuracy, val_loss, accuracy, accuracy_worst10,
            accuracy_client_std, loss, ari, nmi, purity, clusters`, [T'] each, and `bytes_up,
            bytes_down`, the sums since the start.
        client_accuracy: f32[C] at the end, NaN for clients without test samples.
        target: an accuracy; `round_to_target` is None if it is not given or not reached."""
    curves = {name: np.asarray(values, np.float64).reshape(-1) for name, values in history.items()}
    rounds = curves.get("round", np.zeros(0))
    accuracy = curves.get("accuracy", np.full(len(rounds), np.nan))
    clients = _keep_finite(
        np.asarray([] if client_accuracy is None else client_accuracy, np.float64)
    )
    # In float32, as accuracies are measured: 70 of 100 right must reach a target of 0.7.
    high = accuracy.astype(np.float32) >= np.float32(np.inf if target is None else target)
    reached = np.flatnonzero(high & (rounds >= 1))
    traffic = curves.get("bytes_up", np.full(len(rounds), np.nan)) + curves.get(
        "bytes_down", np.full(len(rounds), np.nan)
    )
    best = _find_best(curves)
    summary: dict[str, float | int | None] = {
        "accuracy_max": _apply_finite(np.max, accuracy[rounds >= 1]),
        "accuracy_last": _last(curves, "accuracy"),
        "accuracy_last10": _apply_finite(np.mean, accuracy[rounds >= 1][-10:]),
        "accuracy_worst10": worst_tenth(clients)
        if len(clients)
        else _last(curves, "accuracy_worst10"),
        "accuracy_client_std": float(clients.std())
        if len(clients)
        else _last(curves, "accuracy_client_std"),
        **{f"{name}_last": _last(curves, name) for name in ("loss", "ari", "nmi", "purity")},
        "clusters_last": _to_int(_last(curves, "clusters")),
        "rounds": int(rounds[-1]) if len(rounds) else 0,
        "round_to_target": int(rounds[reached[0]]) if len(reached) else None,
        "bytes_up": _to_int(_last(curves, "bytes_up")),
        "bytes_down": _to_int(_last(curves, "bytes_down")),
        "bytes_to_target": _to_int(float(traffic[reached[0]])) if len(reached) else None,
        **_summarise_clock(curves, reached),
    }
    if best is not None:
        summary["accuracy_at_best_val"] = float(accuracy[best])
        summary["round_of_best_val"] = int(rounds[best])
        summary |= _average_window(curves, slice(best, best + 1), "at_best_val")
    if sum(rounds >= 1) >= MIN_LAST10:
        summary |= _average_window(curves, slice(-10, None), "last10")
    return summary


def _average_window(curves: Mapping[str, np.ndarray], window: slice, name: str) -> dict[str, float]:
    """Average the quantities that tables show beside the accuracy over these evaluations."""
    names = ("accuracy_worst10", "ari", "nmi", "clusters")
    return {
        f"{each}_{name}": _apply_finite(np.mean, curves[each][window])
        for each in names
        if each in curves
    }


def _summarise_clock(
    curves: Mapping[str, np.ndarray], reached: np.ndarray
) -> dict[str, float | None]:
    """Return the simulated seconds of a run, and until its target was reached; {} without a
    clock."""
    if "clock_s" not in curves:
        return {}
    to_target = float(curves["clock_s"][reached[0]]) if len(reached) else None
    return {
        "clock_s": _last(curves, "clock_s"),
        "device_s": _last(curves, "device_s"),
        "clock_to_target": to_target,
    }


def _find_best(curves: Mapping[str, np.ndarray]) -> int | None:
    """Return the evaluation of the highest validation accuracy, in a tie the least loss, then the
    first; None without."""
    accuracy = curves.get("val_accuracy", np.zeros(0))
    known = np.flatnonzero(np.isfinite(accuracy))
    if not len(known):
        return None
    loss = np.nan_to_num(curves.get("val_loss", np.zeros(len(accuracy))), nan=np.inf)
    return int(min(known, key=lambda at: (-accuracy[at], loss[at], at)))


def worst_tenth(accuracy: np.ndarray) -> float:
    """Average the ⌈C/10⌉ lowest finite accuracies f32[C]; NaN without any."""
    finite = np.sort(_keep_finite(np.asarray(accuracy, np.float64)))
    return float(finite[: math.ceil(len(finite) / 10)].mean()) if len(finite) else math.nan


RECOVERY_MARGIN = 0.01
"""A run has recovered from a change when its accuracy is at most this much below the last
evaluation's before it."""


def summarise_drift(
    history: Mapping[str, ArrayLike], spans: Sequence[tuple[int, int]] = ()
) -> dict[str, float | None]:
    """Compute the numbers of a run whose data change. `history`: as for `summarise`, with
    `groups_changed`. `spans`: (first, last round) of each change; without any, each evaluation that
    sees clients changed is one.

    `recovery_rounds` is the mean over the changes of the rounds from the last round of a change to
    the first evaluation that has recovered; None if from some change the run has not recovered
    before the next one or its end. `accuracy_in_drift` and `ari_in_drift` are means over all
    evaluations since the first change."""
    curves = {
        name: np.asarray(history[name], np.float64)
        for name in ("round", "accuracy", "ari", "groups_changed")
    }
    rounds = curves["round"]
    accuracy = curves["accuracy"]
    seen = rounds[curves["groups_changed"] > 0].astype(int).tolist()
    spans = [span for span in spans if span[0] <= rounds[-1]] or [(at, at) for at in seen]
    ends = [*(begin for begin, _ in spans[1:]), math.inf]
    found = [
        _count_recovery(rounds, accuracy, *span, end)
        for span, end in zip(spans, ends, strict=False)
    ]
    since = rounds >= (spans[0][0] if spans else math.inf)
    known = [each for each in found if each is not None]
    return {
        "recovery_rounds": float(np.mean(known)) if known and len(known) == len(found) else None,
        "accuracy_in_drift": _apply_finite(np.mean, accuracy[since]),
        "ari_in_drift": _apply_finite(np.mean, curves["ari"][since]),
    }


def _count_recovery(
    rounds: np.ndarray, accuracy: np.ndarray, begin: int, last: int, end: float
) -> int | None:
    """Count the rounds after `last` until the accuracy is as before `begin`; None if that is not
    before round `end`."""
    before = accuracy[rounds < begin]
    if not len(before) or not math.isfinite(before[-1]):
        return None
    # Accuracies are float32: without the small margin a tie may count as below
    high = accuracy >= before[-1] - RECOVERY_MARGIN - 1e-6
    reached = rounds[high & (rounds >= last) & (rounds < end)]
    return int(reached[0]) - last if len(reached) else None


def _keep_finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _apply_finite(statistic: Callable[[np.ndarray], float], values: np.ndarray) -> float:
    """Compute the statistic of the finite values; NaN without any."""
    finite = _keep_finite(values)
    return float(statistic(finite)) if len(finite) else math.nan


def _last(curves: Mapping[str, np.ndarray], name: str) -> float:
    """Return the last value of a curve; NaN if there is none."""
    values = curves.get(name, np.zeros(0))
    return float(values[-1]) if len(values) else math.nan


def _to_int(value: float) -> int | float:
    return int(value) if math.isfinite(value) else value


QUANTITIES = tuple(name for name in summarise({}) if name != "bytes_to_target")
"""Columns of the summary frame that `summarise` fills, in their order."""
