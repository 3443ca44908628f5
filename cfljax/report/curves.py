"""Enters: a configuration. Leaves: its curves over rounds, as means and standard deviations over
its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.errors import StoreError
from cfljax.report.comparison import headline_of
from cfljax.report.configurations import Configuration, Unit
from cfljax.results.statistics import mean_and_deviation
from cfljax.store.quantities import NEW_CLIENTS, new_steps, number, score_of

# The most configurations that figures show; the table has all
MOST_CURVES = 24
# The most evaluations of a curve that are drawn
MOST_POINTS = 160
# The most runs of a configuration that are drawn as points
MOST_SEEDS = 400


class _Points(NamedTuple):
    """The evaluations of one run."""

    # f64[E]
    rounds: np.ndarray
    # f64[E]
    values: np.ndarray
    # Whether `train.stop` or a callback has ended the run, which then keeps its last value
    stopped: bool = False


class Band(NamedTuple):
    """A mean curve and its deviation: f64[E] each, NaN where no run has a number."""

    round: np.ndarray
    mean: np.ndarray
    std: np.ndarray


class Curves(NamedTuple):
    """All curves of one configuration."""

    # By quantity: accuracy, loss, ari, …, and `bytes`, the sum of both directions
    history: dict[str, Band]
    # By name: the diagnostics of the method that have one number per evaluation
    diagnostics: dict[str, Band]
    # Accuracies of the clients in ascending order; `round` is the share of clients in [0, 1]
    clients: Band
    # Accuracy of newcomers; `round` is the number of local steps on their labelled samples
    newcomers: Band
    seconds: float
    """Seconds for training and evaluating a run as long as the longest, without compiling, at the
    mean pace of all rounds."""
    # The number of runs that are averaged
    runs: int
    stopped: tuple[int, ...] = ()
    """The rounds after which `train.stop` or a callback has ended runs, ascending; such a run keeps
    its last values in the means."""
    changes: tuple[int, ...] = ()
    """The evaluations, by their rounds, that see clients in other true groups than the one before
    (`data.drift`)."""
    # Seconds before the rounds, pre-training included
    setup: float = 0.0
    waited: np.ndarray = np.zeros(0)
    """f64[K]: simulated seconds that the members of each cluster of the first run have waited for
    others; empty if unknown."""

    # What the curve is called that methods are compared by
    score: str = "accuracy"

    @property
    def clusters(self) -> Band | None:
        """The number of clusters; of methods that cluster their participants in every round, that
        number."""
        return self.diagnostics.get("clusters", self.history.get("clusters"))


def chosen(configurations: Sequence[Configuration], most: int = MOST_CURVES) -> list[Configuration]:
    """Choose the configurations that figures show, in the order of the table: the best of each
    method and data, then the rest."""
    if len(configurations) <= most:
        return [c for c in configurations if drawn_units(c)]
    value = headline_of(configurations).of
    of = [
        [v for unit in c.by_status("done") if math.isfinite(v := value(unit))]
        for c in configurations
    ]
    there = (i for i, c in enumerate(configurations) if drawn_units(c))
    ranked = sorted(there, key=lambda i: -(mean_and_deviation(of[i])[0] if of[i] else -1))
    first = {
        (configurations[i].folder, configurations[i].label, configurations[i].block): i
        for i in reversed(ranked)
    }
    leaders = set(first.values())
    order = [i for i in ranked if i in leaders] + [i for i in ranked if i not in leaders]
    return [configurations[i] for i in sorted(order[:most])]


def drawn_units(configuration: Configuration) -> list[Unit]:
    """Return the runs that are done, or if none is, the diverged ones."""
    return configuration.by_status("done") or configuration.by_status("diverged")


def read(unit: Unit, prefixes: Sequence[str], problems: list[str]) -> dict[str, np.ndarray] | None:
    """Read the arrays of a run below these prefixes. If its file is damaged, return None and add a
    line to `problems`."""
    try:
        return unit.store.read(unit.id, tuple(prefixes)).arrays
    except StoreError as error:
        problems.append(str(error))
        return None


def curves(configuration: Configuration, problems: list[str]) -> Curves:
    """All curves of a configuration. Adds a line to `problems` for each damaged file."""
    history: dict[str, list[_Points]] = {}
    diagnostics: dict[str, list[_Points]] = {}
    clients = []
    stopped = []
    made = []
    waited = np.zeros(0)
    units = drawn_units(configuration)
    for unit in units:
        arrays = read(unit, ("history/", "diag/", "client_accuracy"), problems)
        if arrays is None:
            continue
        rounds = arrays.get("history/round", np.zeros(0)).astype(np.float64)
        # Whether train.stop or a callback has ended the run
        train = unit.record["config"].get("train", {})
        may_end = bool(train.get("stop")) or "stopped_at" in unit.record
        ended = len(rounds) > 0 and may_end and rounds[-1] < train.get("rounds", 0)
        for curves, prefix in (
            (history, "history/"),
            (diagnostics, f"diag/{unit.record['method']}/"),
        ):
            for name, values in _select(arrays, rounds, prefix).items():
                curves.setdefault(name, []).append(_Points(rounds, values, ended))
        if not len(waited):
            waited = arrays.get(f"diag/{unit.record['method']}/waited_s", np.zeros((1, 0)))[
                -1
            ].astype(np.float64)
        clients.append(_sort_shares(arrays.get("client_accuracy", np.zeros(0))))
        if len(rounds):
            made.append((unit, rounds[-1]))
            stopped += [int(rounds[-1])] if ended else []
    moved = [each.rounds[each.values > 0] for each in history.get("groups_changed", [])]
    return Curves(
        {name: _thin(_make_band(parts)) for name, parts in history.items()},
        {name: _thin(_make_band(parts)) for name, parts in diagnostics.items()},
        _make_band([part for part in clients if len(part.rounds)]),
        _make_band(
            [
                part
                for unit in units
                if len((part := _read_newcomers(unit.record["summary"])).rounds)
            ]
        ),
        _scale_seconds(made),
        len(units),
        tuple(sorted(stopped)),
        tuple(np.unique(np.concatenate([[], *moved])).astype(int).tolist()),
        math.fsum(float(unit.record["timings"].get("setup") or 0) for unit, _ in made)
        / max(len(made), 1),
        waited,
        score_of(units[0].record) if units else "accuracy",
    )


def _scale_seconds(made: Sequence[tuple[Unit, float]]) -> float:
    """Return the seconds of a run as long as the longest of these, each with the rounds that it has
    made; NaN where none made any."""
    rounds = [last for _, last in made]
    if not sum(rounds):
        return math.nan
    spent = [
        float(unit.record["timings"].get(name) or 0)
        for unit, _ in made
        for name in ("train", "eval")
    ]
    return math.fsum(spent) / math.fsum(rounds) * max(rounds)


def _read_newcomers(summary: Mapping[str, object]) -> _Points:
    """Read the accuracies of new clients over their local steps."""
    found = {
        s: number(value)
        for name, value in summary.items()
        if name.startswith(NEW_CLIENTS) and (s := new_steps(name)) >= 0
    }
    steps = sorted(found)
    return _Points(np.array(steps, float), np.array([found[each] for each in steps], float))


def _select(
    arrays: Mapping[str, np.ndarray], rounds: np.ndarray, prefix: str
) -> dict[str, np.ndarray]:
    """Return the arrays below the prefix that have one number per evaluation, by their names
    without it."""
    curves = {
        name.removeprefix(prefix): values.astype(np.float64)
        for name, values in arrays.items()
        if name.startswith(prefix)
        and values.shape == rounds.shape
        and values.dtype.kind in "biuf"
        and len(rounds)
    }
    curves.pop("round", None)
    # Before the first round a method has nothing to report; other models are scored even then
    if prefix != "history/":
        return {
            name: v if name.startswith("accuracy") else np.where(rounds > 0, v, np.nan)
            for name, v in curves.items()
        }
    if "bytes_up" in curves and "bytes_down" in curves:
        curves["bytes"] = curves["bytes_up"] + curves["bytes_down"]
    return curves


def _make_band(parts: Sequence[_Points]) -> Band:
    """Mean and standard deviation of the finite values at every round that any of the runs
    evaluated. A run that was stopped counts with its last value from then on, so that the means do
    not turn to the runs that go on."""
    if not parts:
        return Band(*(np.zeros(0),) * 3)
    rounds = parts[0].rounds
    if any(not np.array_equal(rounds, part.rounds) for part in parts[1:]):
        rounds = np.unique(np.concatenate([part.rounds for part in parts]))
    table = np.full((len(parts), len(rounds)), np.nan)
    for row, part in zip(table, parts, strict=True):
        row[np.searchsorted(rounds, part.rounds)] = part.values
        if part.stopped:
            row[rounds > part.rounds[-1]] = part.values[-1]
    finite = np.isfinite(table)
    n = finite.sum(axis=0)
    mean = np.where(finite, table, 0.0).sum(axis=0) / np.maximum(n, 1)
    square = (np.where(finite, table - mean, 0.0) ** 2).sum(axis=0) / np.maximum(n - 1, 1)
    return Band(rounds, np.where(n, mean, np.nan), np.where(n > 1, np.sqrt(square), np.nan))


def _thin(band: Band) -> Band:
    keep = spaced(len(band.round), MOST_POINTS)
    return Band(*(values[keep] for values in band))


def spaced(n: int, most: int) -> np.ndarray:
    """At most `most` of the numbers 0 … n − 1, evenly spaced, the first and the last included."""
    return (
        np.arange(n)
        if n <= most
        else np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))
    )


def _sort_shares(accuracy: np.ndarray) -> _Points:
    """Return (share of the clients, accuracy in ascending order) at a fixed number of points, so
    that seeds can be averaged."""
    finite = np.sort(accuracy[np.isfinite(accuracy)].astype(np.float64))
    if not len(finite):
        return _Points(np.zeros(0), np.zeros(0))
    share = np.linspace(0, 1, min(101, max(len(finite), 2)))
    return _Points(share, np.interp(share, np.linspace(0, 1, len(finite)), finite))
