"""The frames of finished runs: a row per run, a row per evaluation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cfljax.registry.options import show
from cfljax.store import QUANTITIES, SECONDS

if TYPE_CHECKING:
    import pandas

Record = dict[str, Any]

CURVES = (
    "accuracy",
    "accuracy_worst10",
    "accuracy_client_std",
    "loss",
    "ari",
    "nmi",
    "purity",
    "clusters",
    "bytes_up",
    "bytes_down",
)
"""Columns of the history frame after `run` and `round`; quantities of a method's own follow."""

SOMETIMES = ("epsilon", "accuracy_train_clients_last", "accuracy_test_clients_last")
"""Columns of the summary frame that are there where a run has them."""


def label_of(record: Record) -> str:
    """What the spec calls the run's method; its name where the spec gives no label."""
    return str(record.get("label") or record["method"])


def summaries(records: Collection[Record]) -> pandas.DataFrame:
    """A row per run: what `Results.to_pandas` promises."""
    import pandas as pd

    options = [*_labelled(records), *varying(records)]
    own = _own_metrics(records)
    rows = [_row(record, options, own) for record in records]
    frame = pd.DataFrame(rows, columns=["run", "method", "seed", *options, "status", *QUANTITIES, *SECONDS, *own])
    return _whole(frame.astype(dict.fromkeys((*QUANTITIES, *SECONDS, *own), float)))


def overview(records: Collection[Record]) -> pandas.DataFrame:
    """The first rows of it with the columns that fit a screen."""
    shown = ["run", "method", "seed", *_labelled(records), *varying(records)]
    shown += ["status", "accuracy_max", "accuracy_last", "rounds"]
    frame = summaries(records)[shown].head(20).copy()
    for name in ("accuracy_max", "accuracy_last", "rounds"):
        frame[name] = [short(value) for value in frame[name]]
    return frame


def varying(records: Iterable[Record]) -> list[str]:
    """Dotted names of the options that vary, in the order of the spec."""
    names = dict.fromkeys(name for record in records for name in record.get("varies", {}))
    taken = {"run", "method", "seed", "seeds", "method.name", "status", *QUANTITIES, *SECONDS}
    return [name for name in names if name not in taken]


def histories(runs: Iterable[tuple[str, Mapping[str, np.ndarray]]]) -> pandas.DataFrame:
    """The curves of (run, history) pairs in one frame with a row per evaluation."""
    import pandas as pd

    names, found = [], []
    for run, history in runs:
        names.append(run)
        found.append(curves(history))
    own = dict.fromkeys(name for each in found for name in each if name not in ("round", *CURVES))
    lengths = [len(each["round"]) for each in found]
    frame = {"run": np.repeat(np.array(names, object), lengths)}
    for name in ("round", *CURVES, *own):
        parts = [each.get(name, np.full(len(each["round"]), np.nan, np.float32)) for each in found]
        frame[name] = np.concatenate(parts) if parts else np.zeros(0)
    return pd.DataFrame(frame)


def curves(history: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`round` first and as an integer, then the curves with one value per evaluation."""
    rounds = history.get("round", np.zeros(0))
    rest = {name: a for name, a in history.items() if name != "round" and a.shape == rounds.shape}
    return {"round": rounds.astype(np.int64)} | rest


def short(value: Any) -> str:
    """A number as people read it."""
    if not isinstance(value, (float, np.floating)):
        return str(value)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) > 1 else f"{number:.4g}"


def _labelled(records: Iterable[Record]) -> list[str]:
    """A column for the labels, where the spec gives some."""
    return ["label"] if any(label_of(record) != record["method"] for record in records) else []


def _own_metrics(records: Collection[Record]) -> list[str]:
    """Columns of the user's own metrics; before them those of SOMETIMES that runs have."""
    asked = (record.get("config", {}).get("train", {}).get("metrics") for record in records)
    sometimes = [name for name in SOMETIMES if any(name in record.get("summary", {}) for record in records)]
    return sometimes + list(dict.fromkeys(f"{name}_last" for names in asked if isinstance(names, list) for name in names))


def _row(record: dict[str, Any], varying: list[str], own: list[str]) -> list[Any]:
    options = [_cell(_option(record, name)) for name in varying]
    numbers, mine = ([_number(record.get("summary", {}).get(name)) for name in names] for names in (QUANTITIES, own))
    seconds = [_number(record.get("timings", {}).get(name.removeprefix("seconds_"))) for name in SECONDS]
    return [record["id"], record.get("method"), record.get("seed"), *options, record["status"], *numbers, *seconds, *mine]


def _option(record: dict[str, Any], name: str) -> Any:
    """The value of a dotted option: of those that vary, or fixed in this run's configuration; None where it has none; the label."""
    if name == "label":
        return label_of(record)
    if name in record.get("varies", {}):
        return record["varies"][name]
    section, _, key = name.partition(".")
    table = record.get("config", {}).get(section)
    return table.get(key, table.get(key.rpartition(".")[2])) if isinstance(table, dict) else None


def _cell(value: Any) -> Any:
    """Lists and tables as the spec writes them, so that a frame can be grouped by them."""
    return show(value) if isinstance(value, (list, dict)) else value


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _whole(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Counts as integers, where all of them are known."""
    for name in ("clusters_last", "rounds", "round_to_target", "bytes_up", "bytes_down"):
        if len(frame) and np.isfinite(frame[name]).all():
            frame[name] = frame[name].astype(np.int64)
    return frame
