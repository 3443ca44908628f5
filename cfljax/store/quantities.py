"""The quantities of a run's summary. An entry of QUANTITIES is all that there is to one: frames,
tables, the page, `--columns` and the documentation read it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from cfljax.federation import VIEWS
from cfljax.registry.options import Table, Value
from cfljax.store.summary import MIN_LAST10, RunCurves

Place = Literal["line", "notebook", "terminal"]
Number = int | float | None
"""None: the run has not reached it."""
WINDOWS = {"at_best_val": "at best validation", "last10": "last 10", "last": "last"}
"""Which evaluations a table is about, the first of these that its runs have -> the heading of its
accuracy."""


@dataclasses.dataclass(frozen=True)
class SummaryQuantity:
    """A quantity of a run's summary, and where it is shown."""

    key: str
    """Its name in records, in the summary frame and in `--columns`."""
    help: str
    """What it is, for the documentation, in which quantities with the same text share a row."""
    compute: Callable[[RunCurves, str], Number] | None = None
    """From `curve` and the run's other curves. None: what ends the run records it, or `read` makes
    it of a record."""
    curve: str = ""
    needs: str = ""
    """The curve without which a run does not have it."""
    least: int = 0
    """The number of evaluations after round 0 without which a run does not have it."""
    read: Callable[[Table], float] | None = None
    """From the run's record; None: the record's summary has it."""
    ask: str = ""
    """`module:function` of what computes it of many runs. Tables have it only if `--columns` names
    it; no record has it."""
    kind: str = "percent"
    """How it is written: percent, score, count, bytes or seconds."""
    heading: str = ""
    """Of its column in the comparison; "": that has none."""
    better: int = 1
    """1: the higher the better, −1: the lower, 0: no cell is marked as the best."""
    window: str = ""
    """The one of WINDOWS whose evaluations it is about; "": about no single ones, and in all
    tables."""
    sentence: str = ""
    """What a paper would call it, if a comparison may rest on it."""
    reaches: Literal["", "target", "recovery", "fedavg"] = ""
    """What a run may never reach: a cell says how many runs have. Those of the target are counted
    again where results are read."""
    note: str = ""
    """A sentence below tables with the column: if a run has it, or has not reached it."""
    first_to_go: int = 0
    """When the column is left out if a terminal is narrow: 1 is the first, 0: never."""
    frame: Literal["always", "known", "never"] = "known"
    """Whether the summary frame has it: always, or if a run has it."""
    shown: tuple[Place, ...] = ()
    """Where else: in the line that describes a run, in a notebook's table of one, in the table at
    the end of a sweep."""

    def of_score(self, score: str) -> SummaryQuantity:
        """Return the quantity of runs with this score, which stands in the place of accuracy."""
        if score == "accuracy":
            return self
        names = {
            name: getattr(self, name).replace("accuracy", score)
            for name in ("key", "curve", "needs", "sentence")
        }
        if names["key"] != self.key and self.heading:
            names["heading"] = f"{score} {self.heading}"
        return dataclasses.replace(self, **names)

    def value(self, record: Table) -> float:
        """Return the quantity of the run with this record; NaN if it has none."""
        if self.read is not None:
            return self.read(record)
        return number(record.get("summary", {}).get(self.key))


def number(value: Value) -> float:
    """Convert the value to a float; NaN if it is missing."""
    return math.nan if value is None else float(value)


def _sum_bytes(record: Table) -> float:
    """Return all bytes that clients sent and received."""
    summary = record["summary"]
    return number(summary.get("bytes_up")) + number(summary.get("bytes_down"))


def _sum_seconds(record: Table) -> float:
    """Return the seconds in which a run was trained and evaluated; NaN if they are not recorded.
    Compiling is not a cost of a method: the first run of a program pays for all."""
    spent = record["timings"]
    return number(spent.get("train", 0)) + number(spent.get("eval", 0)) if spent else math.nan


def _read_seconds(part: str) -> Callable[[Table], float]:
    """Return the function that reads a part of a run's seconds."""
    return lambda record: number(record.get("timings", {}).get(part))


def _read_seconds_until(key: str) -> Callable[[Table], float]:
    """Return the function that reads the seconds of training and evaluating until the round of this
    quantity, at the mean pace of the run."""

    def read(record: Table) -> float:
        summary = record["summary"]
        rounds = number(summary.get("rounds"))
        until = number(summary.get(key))
        return _sum_seconds(record) * until / rounds if rounds > 0 else math.nan

    return read


def _list_windows(
    key: str,
    help: str,
    compute: Callable[[RunCurves, str], Number],
    curve: str,
    shown: tuple[Place, ...] = (),
    at_end: tuple[Place, ...] = (),
    **facts: Any,
) -> list[SummaryQuantity]:
    """List a curve's averages over the evaluations that judge a run, and the quantity `key` at its
    end, which is shown `at_end`, too. `facts`: how tables show each of them."""
    averaged = (
        "the quantities below over the last ten evaluations (of at least 50), or at the best "
        "validation accuracy"
    )
    facts["curve"] = curve
    return [
        SummaryQuantity(
            f"{curve}_at_best_val",
            averaged,
            RunCurves.at_best,
            needs="val_accuracy",
            window="at_best_val",
            frame="never",
            shown=shown,
            **facts,
        ),
        SummaryQuantity(
            f"{curve}_last10",
            averaged,
            RunCurves.last10,
            least=MIN_LAST10,
            window="last10",
            frame="never",
            shown=shown,
            **facts,
        ),
        SummaryQuantity(
            key, help, compute, window="last", frame="always", shown=(*shown, *at_end), **facts
        ),
    ]


NEW_CLIENTS = "accuracy_new_"
"""The accuracy of new clients, followed by the number of their local steps, or "unlabelled"."""


def new_steps(name: str) -> int:
    """Return the number of local steps of new clients in the name of a quantity; −1 for those
    without labels."""
    steps = name.removeprefix(NEW_CLIENTS)
    return int(steps) if steps.isdecimal() else -1


_BEST = (
    "`accuracy` at the evaluation with the best validation accuracy, and the round of that "
    "evaluation. Only with `data.validation`"
)
_END = "the quantities below at the last evaluation"
_RMSE = (
    "root of the mean squared error of a [continuous target](data.md#a-continuous-target), whose "
    "other columns are called `r2` instead of `accuracy`"
)
_CLIENTS = "`accuracy` of the clients that train, and of those that never do"
_FINETUNED = "the same scores after [fine-tuning](tuning.md#fine-tuning-at-the-end)"
_TARGET = (
    "rounds, bytes, seconds and simulated seconds to the accuracy of `--target`; empty: never "
    "reached"
)
_TO_FEDAVG = (
    "the cost in tables if `fedavg` is among the methods and there is no `--target`: rounds, bytes "
    "and seconds until the accuracy by which `fedavg` is compared with the same seed and data"
)
_DRIFT = (
    "after [changes of the data](clients.md#groups-that-change): means since the first change, and "
    "rounds until the accuracy is back within a point"
)
_CLOCK = "[simulated seconds](time.md) of the run and of all devices, and the cost of the latter"
_TRAFFIC = "communication cost: all bytes that clients sent and received"
_SECONDS = "computing time, summed over all starts of the run"
_EPSILON = (
    "ε of updates and choices together, and of [choices alone](privacy.md#differential-privacy)"
)
_OVER_FEDAVG = (
    "bytes, and seconds of training and evaluating, divided by those of `fedavg` with the same "
    "seed, data, model and `train` in the folder"
)
_NEW = (
    "[new clients](tuning.md#new-clients): accuracy after this many local steps, or without "
    "labels, and `ari` of their clusters"
)
_ABOUT_CLIENTS: dict[str, Any] = {
    "note": "test clients never train; they count in all other accuracies, too",
    "shown": ("terminal",),
}
_REACHES_TARGET: dict[str, Any] = {
    "better": -1,
    "reaches": "target",
    "note": "rounds, bytes and seconds to the target: over the runs that reached it (how many of "
    "how many)",
}
_REACHES_FEDAVG: dict[str, Any] = {
    "better": -1,
    "reaches": "fedavg",
    "note": "to FedAvg: until a run has the accuracy by which FedAvg is compared, with the same "
    "seed and data; over the runs that reached it (how many of how many, if not all)",
    "frame": "never",
}

QUANTITIES: dict[str, SummaryQuantity] = {
    each.key: each
    for each in (
        SummaryQuantity(
            "accuracy_max",
            "the highest `accuracy` after round 0, which is optimistic because it is chosen on "
            "test data",
            RunCurves.maximum,
            "accuracy",
            heading="max",
            first_to_go=6,
            frame="always",
            shown=("line",),
        ),
        SummaryQuantity(
            "accuracy_at_best_val",
            _BEST,
            RunCurves.at_best,
            "accuracy",
            needs="val_accuracy",
            heading=WINDOWS["at_best_val"],
            window="at_best_val",
            sentence="test accuracy at the round of the best validation accuracy",
            shown=("terminal",),
        ),
        SummaryQuantity(
            "round_of_best_val",
            _BEST,
            RunCurves.count_at_best,
            "round",
            needs="val_accuracy",
            kind="count",
        ),
        SummaryQuantity(
            "accuracy_last",
            "`accuracy` of the last evaluation",
            RunCurves.last,
            "accuracy",
            heading=WINDOWS["last"],
            window="last",
            sentence="test accuracy at the last evaluation",
            frame="always",
            shown=("line", "terminal"),
        ),
        SummaryQuantity(
            "accuracy_last10",
            "mean of `accuracy` over the last ten evaluations",
            RunCurves.last10,
            "accuracy",
            heading=WINDOWS["last10"],
            window="last10",
            sentence="mean test accuracy over the last ten evaluations",
            frame="always",
            shown=("terminal",),
        ),
        *_list_windows(
            "accuracy_worst10",
            "mean accuracy of the worst tenth of the clients at the end (fairness)",
            RunCurves.worst_clients,
            "accuracy_worst10",
            heading="worst tenth",
            shown=("terminal",),
            at_end=("notebook",),
        ),
        SummaryQuantity(
            "accuracy_client_std",
            "standard deviation of the clients' accuracies at the end",
            RunCurves.spread_of_clients,
            "accuracy_client_std",
            frame="always",
            shown=("notebook",),
        ),
        SummaryQuantity(
            "loss_last",
            _END,
            RunCurves.last,
            "loss",
            kind="score",
            frame="always",
            shown=("notebook",),
        ),
        *(
            SummaryQuantity(
                f"rmse_{window}",
                _RMSE,
                compute,
                "rmse",
                needs=needs,
                least=least,
                kind="score",
                heading="RMSE",
                better=-1,
                window=window,
                shown=("terminal",),
            )
            for window, compute, needs, least in (
                ("at_best_val", RunCurves.at_best, "val_rmse", 0),
                ("last10", RunCurves.last10, "rmse", MIN_LAST10),
                ("last", RunCurves.last, "rmse", 0),
            )
        ),
        *_list_windows(
            "ari_last",
            _END,
            RunCurves.last,
            "ari",
            kind="score",
            heading="ARI",
            shown=("terminal",),
            at_end=("notebook",),
        ),
        *_list_windows(
            "nmi_last",
            _END,
            RunCurves.last,
            "nmi",
            kind="score",
            heading="NMI",
            first_to_go=3,
        ),
        SummaryQuantity(
            "purity_last", _END, RunCurves.last, "purity", kind="score", frame="always"
        ),
        *_list_windows(
            "clusters_last",
            _END,
            RunCurves.count,
            "clusters",
            kind="count",
            heading="clusters",
            better=0,
            first_to_go=7,
            shown=("terminal",),
            at_end=("notebook",),
        ),
        *(
            SummaryQuantity(
                f"ari_{name}",
                "ARI against the groups of one of several [views](clients.md#shifts-that-combine), "
                "after the last round",
                kind="score",
                heading=f"ARI of {name}",
            )
            for name in VIEWS
        ),
        SummaryQuantity(
            "rounds",
            "rounds done; fewer than `train.rounds` after early stopping",
            RunCurves.count_or_zero,
            "round",
            kind="count",
            frame="always",
            shown=("line",),
        ),
        SummaryQuantity("epsilon", _EPSILON, kind="score"),
        SummaryQuantity("epsilon_choice", _EPSILON, kind="score"),
        SummaryQuantity(
            "accuracy_train_clients_last",
            _CLIENTS,
            RunCurves.last,
            "accuracy_train_clients",
            needs="accuracy_test_clients",
            heading="last, training clients",
            **_ABOUT_CLIENTS,
        ),
        SummaryQuantity(
            "accuracy_test_clients_last",
            _CLIENTS,
            RunCurves.last,
            "accuracy_test_clients",
            needs="accuracy_test_clients",
            heading="last, test clients",
            **_ABOUT_CLIENTS,
        ),
        SummaryQuantity(
            "accuracy_newcomers_last",
            "`accuracy` of the clients that arrive late, at the last evaluation",
            RunCurves.last,
            "accuracy_newcomers",
            needs="accuracy_newcomers",
            frame="never",
        ),
        SummaryQuantity(
            "accuracy_finetuned",
            _FINETUNED,
            heading="last, fine-tuned",
            note="fine-tuned: after some local steps of each client when all rounds are over "
            "(train.finetune_steps)",
        ),
        SummaryQuantity("accuracy_worst10_finetuned", _FINETUNED),
        SummaryQuantity("accuracy_client_std_finetuned", _FINETUNED),
        SummaryQuantity("val_accuracy_finetuned", _FINETUNED),
        SummaryQuantity(
            "round_to_target",
            _TARGET,
            RunCurves.count_at_target,
            "round",
            kind="count",
            heading="rounds to target",
            frame="always",
            shown=("terminal",),
            **_REACHES_TARGET,
        ),
        SummaryQuantity(
            "bytes_to_target",
            _TARGET,
            RunCurves.count_at_target,
            "bytes",
            kind="bytes",
            heading="bytes to target",
            first_to_go=1,
            frame="never",
            **_REACHES_TARGET,
        ),
        SummaryQuantity(
            "seconds_to_target",
            _TARGET,
            read=_read_seconds_until("round_to_target"),
            kind="seconds",
            heading="seconds to target",
            first_to_go=1,
            frame="never",
            **_REACHES_TARGET,
        ),
        SummaryQuantity(
            "round_to_fedavg",
            _TO_FEDAVG,
            kind="count",
            heading="rounds to FedAvg",
            first_to_go=7,
            shown=("terminal",),
            **_REACHES_FEDAVG,
        ),
        SummaryQuantity(
            "bytes_to_fedavg",
            _TO_FEDAVG,
            kind="bytes",
            heading="bytes to FedAvg",
            first_to_go=6,
            **_REACHES_FEDAVG,
        ),
        SummaryQuantity(
            "seconds_to_fedavg",
            _TO_FEDAVG,
            read=_read_seconds_until("round_to_fedavg"),
            kind="seconds",
            heading="seconds to FedAvg",
            first_to_go=5,
            **_REACHES_FEDAVG,
        ),
        SummaryQuantity(
            "accuracy_in_drift",
            _DRIFT,
            RunCurves.in_drift,
            "accuracy",
            needs="groups_changed",
            heading="in drift",
            shown=("terminal",),
        ),
        SummaryQuantity(
            "ari_in_drift",
            _DRIFT,
            RunCurves.in_drift,
            "ari",
            needs="groups_changed",
            kind="score",
            heading="ARI in drift",
            shown=("terminal",),
        ),
        SummaryQuantity(
            "recovery_rounds",
            _DRIFT,
            RunCurves.recovery,
            "accuracy",
            needs="groups_changed",
            kind="count",
            heading="rounds to recover",
            better=-1,
            reaches="recovery",
            note="rounds to recover: over the runs that have recovered from all changes (how many "
            "of how many)",
            shown=("terminal",),
        ),
        SummaryQuantity(
            "clock_s",
            _CLOCK,
            RunCurves.last,
            "clock_s",
            needs="clock_s",
            kind="seconds",
            heading="simulated seconds",
            better=0,
            shown=("terminal",),
        ),
        SummaryQuantity(
            "clock_to_target",
            _TARGET,
            RunCurves.at_target,
            "clock_s",
            needs="clock_s",
            kind="seconds",
            heading="simulated seconds to target",
            shown=("terminal",),
            **_REACHES_TARGET,
        ),
        SummaryQuantity(
            "device_s", _CLOCK, RunCurves.last, "device_s", needs="clock_s", kind="seconds"
        ),
        SummaryQuantity("cost", _CLOCK, kind="seconds", heading="cost", better=0, first_to_go=2),
        SummaryQuantity(
            "bytes_up",
            _TRAFFIC,
            RunCurves.count,
            "bytes_up",
            kind="bytes",
            frame="always",
            shown=("notebook",),
        ),
        SummaryQuantity(
            "bytes_down",
            _TRAFFIC,
            RunCurves.count,
            "bytes_down",
            kind="bytes",
            frame="always",
            shown=("notebook",),
        ),
        SummaryQuantity(
            "bytes",
            "the sum of both, in tables",
            read=_sum_bytes,
            kind="bytes",
            heading="bytes",
            better=0,
            first_to_go=4,
        ),
        SummaryQuantity(
            "nonfinite_updates",
            "updates left out because they were not finite",
            RunCurves.count,
            "nonfinite",
            needs="nonfinite",
            kind="count",
            frame="never",
        ),
        *(
            SummaryQuantity(
                f"seconds_{part}",
                _SECONDS,
                read=_read_seconds(part),
                kind="seconds",
                frame="always",
            )
            for part in ("compile", "train", "eval")
        ),
        SummaryQuantity(
            "seconds",
            "the sum of training and evaluating, in tables",
            read=_sum_seconds,
            kind="seconds",
            heading="seconds",
            better=0,
            note="seconds: training and evaluating, without compiling and setting up",
            first_to_go=5,
            shown=("terminal",),
        ),
        SummaryQuantity(
            "generalisation",
            "mean over the clients that train: the accuracy of a client's model (of a mixture, the "
            "one of its largest weight) on the test samples of the other clients of its true "
            "group, like FedRC's global accuracy on new clients of each concept. Needs `--keep "
            "models`",
            ask="cfljax.report.asked:compute_generalisation",
            heading="generalisation",
        ),
        SummaryQuantity(
            "was",
            "FedGWC's Wasserstein Adjusted Score (not in the authors' code; implemented from "
            "descriptions in other papers): the silhouette of the clusters by the Euclidean "
            "distance of clients' sorted class frequencies",
            ask="cfljax.report.asked:compute_was",
            kind="score",
            heading="WAS",
        ),
        SummaryQuantity(
            "bytes_over_fedavg",
            _OVER_FEDAVG,
            ask="cfljax.report.asked:divide_bytes",
            kind="score",
            heading="bytes over FedAvg",
            better=0,
        ),
        SummaryQuantity(
            "seconds_over_fedavg",
            _OVER_FEDAVG,
            ask="cfljax.report.asked:divide_seconds",
            kind="score",
            heading="seconds over FedAvg",
            better=0,
        ),
    )
}
"""Name -> quantity, in the order of the columns of frames and tables."""


def score_of(record: Table) -> str:
    """Return what the scores of a run are called: accuracy, or the score of its loss."""
    return str(record.get("score", "accuracy"))


def list_quantities(
    found: Iterable[str], scores: Iterable[str] = ("accuracy",)
) -> list[SummaryQuantity]:
    """List all quantities.

    Args:
        found: names, of which those of new clients come at the end: accuracy after each number of
            steps, and ARI.
        scores: whose quantities are listed, those of accuracy in their places."""
    names = set(found)
    new = sorted((name for name in names if name.startswith(NEW_CLIENTS)), key=new_steps)
    scores = list(scores)
    of_scores = [each.of_score(score) for each in QUANTITIES.values() for score in scores]
    # What is about no score is there once
    quantities = list({each.key: each for each in reversed(of_scores)}.values())[::-1]
    for name in new:
        steps = new_steps(name)
        what = "unlabelled" if steps < 0 else f"{steps} step{'' if steps == 1 else 's'}"
        quantities.append(
            SummaryQuantity(name, _NEW, heading=f"new clients, {what}", shown=("terminal",))
        )
    if "ari_new" in names:
        quantities.append(
            SummaryQuantity(
                "ari_new",
                _NEW,
                kind="score",
                heading="new clients, ARI",
                first_to_go=8,
                shown=("terminal",),
            )
        )
    return quantities


def summarise(
    history: Mapping[str, ArrayLike],
    client_accuracy: ArrayLike | None = None,
    target: float | None = None,
    spans: Sequence[tuple[int, int]] = (),
    score: str = "accuracy",
) -> dict[str, Number]:
    """Compute the quantities that a run's curves give. What is unknown is NaN, what was not reached
    None. Arguments as for `RunCurves`."""
    run = RunCurves(history, client_accuracy, target, spans, score)
    return {
        each.key: each.compute(run, each.curve)
        for each in list_quantities((), [score])
        if each.compute and run.has(each.needs, each.least)
    }
