"""HOST. The rows of the history, from what the programs of rounds and of the evaluation have
returned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.engine import metrics
from cfljax.engine.resume import Rows
from cfljax.engine.settings import MAX_SHARES, Stop
from cfljax.federation.room import find_phases
from cfljax.types import Federation, Score
from cfljax.types.federation import NEVER

# A run whose mean test loss is above this, or not finite, has diverged
MAX_LOSS = 1e6
ACCURACY = Score()


class Clients(NamedTuple):
    """What rows are computed from besides scores: numpy arrays [C], and static numbers."""

    # The true group of each client; −1: unknown, or a dummy
    group: np.ndarray
    groups: int
    # Bool: clients that arrive after round 0
    late: np.ndarray
    # Bool: clients with training data
    trains: np.ndarray
    # i32[P]: the first round of each phase (`data.drift`); without drift there is one phase
    begin: np.ndarray
    # i32[P, C]: `group` in each phase; it is the first
    phases: np.ndarray
    # What scores are called
    score: Score = Score()
    # Of all test targets, for a score that explains it; else 1
    variance: float = 1.0

    def at(self, round: int) -> Clients:
        """Return the clients in this round."""
        return self._replace(group=self.phases[(self.begin <= round).sum() - 1])


def extract_clients(federation: Federation, score: Score = ACCURACY) -> Clients:
    """Extract what rows need from a federation and from the score of the model."""
    real = np.asarray(federation.uid) >= 0
    group = np.where(real, np.asarray(federation.group), -1)
    arrive = np.asarray(federation.arrive)
    late = (arrive > 0) & (arrive < NEVER)
    trains = np.asarray(federation.trains)
    # There may be room for groups that nobody is in
    groups = federation.groups if (group >= 0).any() else 0
    drift = find_phases(federation.drift)
    variance = compute_variance(federation) if score.explains else 1.0
    begin, phases = np.zeros(1, np.int32), group[None]
    if drift is not None:
        begin, phases = np.asarray(drift.begin), np.where(real, np.asarray(drift.group), -1)
    return Clients(group, groups, late, trains, begin, phases, score, variance)


def compute_variance(federation: Federation) -> float:
    """Return the variance of the targets of all test samples, each counted once."""
    split = federation.test
    start, count = np.asarray(split.start), np.asarray(split.count)
    real = np.flatnonzero((np.asarray(federation.uid) >= 0) & (count > 0))
    rows = np.asarray(split.rows)
    held = [rows[start[c] : start[c] + count[c]] for c in real]
    if not held:
        return 1.0
    y = np.asarray(federation.pool.y, np.float64)[np.unique(np.concatenate(held))]
    return float(y.var()) or 1.0


def to_scores(clients: Clients, scored: Rows) -> Rows:
    """Return the results of an evaluation with sums of scores, the higher the better, in the place
    of squared errors."""
    if not clients.score.explains:
        return scored
    found = dict(scored)
    for name in scored:
        side, _, kind = name.rpartition("/")
        if kind == "correct" or side == "also":
            number = scored["val/samples" if side == "val" else "samples"]
            errors = np.where(np.isfinite(scored[name]), scored[name], np.nan)
            found[name] = number - errors / clients.variance
    return found


def make_row(
    clients: Clients, report: Rows, scored: Rows, models: int, round: int, label_history: bool
) -> Rows:
    """Build one row of the history of R runs: an array [R, …] of each quantity. `report`, `scored`:
    [R, …] each, see `program.Report` and `evaluation.Scored`. `models`: the number K of models that
    clients are scored by."""
    labels = scored["labels"]
    samples = scored["samples"]
    runs = labels.shape[:1]
    trained = round > 0
    never = np.full(runs, np.nan)
    in_use = np.zeros((*runs, models + 1), bool)
    np.put_along_axis(in_use, np.where(labels >= 0, labels, models), True, -1)
    row = {
        **_accuracies(clients, scored, models),
        "loss": metrics.per_sample(scored["loss"], samples),
        "train_loss": report["train_loss"] if trained else never,
        "discrepancy": report["discrepancy"] if trained else never,
        **metrics.score_clustering(labels, clients.group, models, clients.groups)._asdict(),
        "clusters": in_use[..., :models].sum(-1),
        "scored": (samples > 0).sum(-1),
        "nonfinite": report["nonfinite"],
    }
    if "val/correct" in scored:
        counted = scored["val/samples"]
        row["val_accuracy"] = metrics.per_sample(scored["val/correct"], counted)
        row["val_loss"] = metrics.per_sample(scored["val/loss"], counted)
    if "shares" in scored:
        row |= _average_shares(clients, scored["shares"])
    if clients.score.explains:
        row["rmse"] = np.sqrt(row["loss"])
        if "val_loss" in row:
            row["val_rmse"] = np.sqrt(row["val_loss"])
    training = np.where(clients.trains[_evaluated_ids(scored)], samples, 0)
    for name, value in scored.items():
        kind, _, rest = name.partition("/")
        if kind == "also":
            row[f"diag/accuracy_{rest}"] = metrics.per_sample(value, training)
    row = {clients.score.rename(name): each for name, each in row.items()}
    row |= {name.removeprefix("own/"): scored[name] for name in scored if name.startswith("own/")}
    row = {name: each.astype(np.float32) for name, each in row.items()}
    row |= {name: each for name, each in report.items() if name.startswith("diag/")}
    if "clock" in report:
        clock = report["clock"].astype(np.float64).sum(-1)
        row |= {"clock_s": clock[..., 0], "device_s": clock[..., 1]}
        row |= {
            name: report[name].astype(np.float32)
            for name in ("late", "staleness")
            if name in report
        }
    row |= {"traffic": report["traffic"], "round": np.full(runs, round, np.int32)}
    return row | ({"labels": labels} if label_history else {})


def count_moves(clients: Clients, runs: int, round: int, eval_every: int) -> Rows:
    """Count how often clients have changed their true group since the last evaluation
    (`groups_changed` f32[R]), if data drift."""
    if len(clients.begin) == 1:
        return {}
    begin = clients.begin[1:]
    group = clients.phases
    last_evaluation = (round - 1) // eval_every * eval_every
    changed = (group[1:] != group[:-1]).sum(axis=1)
    since_then = (last_evaluation < begin) & (begin <= round)
    return {"groups_changed": np.full(runs, changed[since_then].sum(), np.float32)}


def _average_shares(clients: Clients, shares: np.ndarray) -> Rows:
    """Average the weights [R, C, K] of the clients in the models over each true group's clients
    that train, [R, G, K] (NaN for a group without any), and add the weights themselves unless they
    are too many."""
    row = {}
    if clients.groups:
        of = (clients.group == np.arange(clients.groups)[:, None]) & clients.trains
        weight = np.where(of, 1.0, 0.0) / np.where(of.any(1), of.sum(1), np.nan)[:, None]
        row["diag/mixture_of_groups"] = weight @ shares.astype(np.float64)
    if shares[0].size <= MAX_SHARES:
        row["diag/mixture_of_clients"] = shares
    return row


def client_accuracies(scored: Rows) -> np.ndarray:
    """Return each client's accuracy f32[R, C]; NaN for clients that are not scored."""
    each = np.full(scored["labels"].shape, np.nan, np.float32)
    each[np.arange(len(each))[:, None], _evaluated_ids(scored)] = metrics.client_accuracy(
        scored["correct"], scored["samples"]
    )
    return each


def find_divergence(lost_at: int, history: Rows, score: Score = ACCURACY) -> int:
    """Return the round after which a run had diverged: nothing finite was left, or its test loss
    was hopeless (squared errors in units of the variance); −1: it has not."""
    loss = 1 - history[score.name] if score.explains else history["loss"]
    blown_up = ~(loss < MAX_LOSS) & (history["scored"] > 0)
    rounds = [int(history["round"][np.argmax(blown_up)])] if blown_up.any() else []
    return min(rounds + [lost_at] * (lost_at >= 0), default=-1)


def _evaluated_ids(scored: Rows) -> np.ndarray:
    ids: np.ndarray = scored["ids"][0] if "ids" in scored else np.arange(scored["labels"].shape[-1])
    return ids


def _accuracies(clients: Clients, scored: Rows, models: int) -> Rows:
    correct = scored["correct"]
    samples = scored["samples"]
    ids = _evaluated_ids(scored)
    fair = metrics.fairness(correct, samples)

    def accuracy_of(clients: np.ndarray) -> np.ndarray:
        return metrics.per_sample(correct, np.where(clients[ids], samples, 0))

    return {
        "accuracy": fair.accuracy,
        "accuracy_client_mean": fair.client_mean,
        "accuracy_worst10": fair.worst_tenth,
        "accuracy_client_std": fair.client_std,
        "accuracy_newcomers": accuracy_of(clients.late),
        "accuracy_train_clients": accuracy_of(clients.trains),
        "accuracy_test_clients": accuracy_of(~clients.trains),
        "accuracy_clusters": metrics.cluster_accuracy(scored["scoring"], correct, samples, models),
    }


class Watch:
    """Which of R runs go on, from the rows of their history as they come."""

    def __init__(self, stop: Stop | None, runs: int):
        self.stop = stop
        # The best value of each run so far, times the sign
        self.best = np.full(runs, -np.inf)
        # The round of that value
        self.since = np.zeros(runs, np.int64)
        # The round after which each run has ended; −1: it goes on
        self.ended = np.full(runs, -1, np.int64)
        # The round in which the user's callback has stopped each run; −1: it has not
        self.stopped = np.full(runs, -1, np.int64)
        # How many rows of the history each run has
        self.evaluations = np.zeros(runs, np.int64)

    @property
    def live(self) -> np.ndarray:
        """Return bool[R]: the runs that go on."""
        return self.ended < 0

    def see(self, rows: Rows) -> np.ndarray:
        """Record rows [R, T, …]; return i64[n]: the runs that end with them. A metric that is not
        finite counts as the worst."""
        before = self.live
        for at, rounds in enumerate(rows["round"][0].tolist()):
            self.evaluations += self.live
            if self.stop is not None:
                value = self.stop.sign * rows[self.stop.metric][:, at].astype(np.float64)
                better = self.live & np.isfinite(value) & (value > self.best)
                self.best[better] = value[better]
                self.since[better] = rounds
                self.ended[self.live & (rounds - self.since >= self.stop.patience)] = rounds
            self.ended[self.live & (self.stopped == rounds)] = rounds
        return np.flatnonzero(before & ~self.live)

    def shares(self, rounds: int, runs: int) -> list[float]:
        """Return each run's share of the time, for the first `runs` runs."""
        done = np.where(self.live, max(rounds, 1), np.maximum(self.ended, 1))[:runs]
        return [float(each) for each in done / done.sum()]
