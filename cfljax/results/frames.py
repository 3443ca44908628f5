"""Make data frames of records and histories of runs: a row per run, or a row per evaluation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cfljax.federation import VIEWS
from cfljax.registry.options import Table, Value, show
from cfljax.store import QUANTITIES, SECONDS_COLUMNS
from cfljax.store.rows import label_of

if TYPE_CHECKING:
    import pandas

CURVES = (
    *("accuracy", "accuracy_worst10", "accuracy_client_std", "loss"),
    *("ari", "nmi", "purity", "clusters", "bytes_up", "bytes_down"),
)
"""Columns of the history frame after `round`; the diagnostics of methods and the user's metrics
follow."""

SOMETIMES = (
    *("accuracy_at_best_val", "round_of_best_val", "epsilon", "epsilon_choice"),
    *("accuracy_train_clients_last", "accuracy_test_clients_last"),
    *("recovery_rounds", "accuracy_in_drift", "ari_in_drift", *(f"ari_{name}" for name in VIEWS)),
    *("accuracy_finetuned", "accuracy_worst10_finetuned", "accuracy_client_std_finetuned"),
    *("clock_s", "clock_to_target", "device_s", "cost"),
)
"""Columns that the summary frame has only if a run has the quantity."""

# The accuracy of new clients, followed by the number of their local steps, or "unlabelled"
NEW_CLIENTS = "accuracy_new_"


def new_steps(name: str) -> int:
    """Return the number of local steps of new clients in the name of a column; −1 for those without
    labels."""
    steps = name.removeprefix(NEW_CLIENTS)
    return int(steps) if steps.isdecimal() else -1


def summaries(records: Collection[Table]) -> pandas.DataFrame:
    """Make the frame of `Results.to_pandas`: a row per run."""
    import pandas as pd

    options = [*_list_label_column(records), *list_varying(records)]
    more = _list_more_quantities(records)
    rows = [_make_row(record, options, more) for record in records]
    frame = pd.DataFrame(
        rows,
        columns=["run", "method", "seed", *options, "status", *QUANTITIES, *SECONDS_COLUMNS, *more],
    )
    return _convert_counts(
        frame.astype(dict.fromkeys((*QUANTITIES, *SECONDS_COLUMNS, *more), float))
    )


def overview(records: Collection[Table]) -> pandas.DataFrame:
    """Return the first 20 rows of that frame with the columns that fit a screen."""
    shown = ["run", "method", "seed", *_list_label_column(records), *list_varying(records)]
    shown += ["status", "accuracy_max", "accuracy_last", "rounds"]
    frame = summaries(records)[shown].head(20).copy()
    for name in ("accuracy_max", "accuracy_last", "rounds"):
        frame[name] = [short(value) for value in frame[name]]
    return frame


def list_varying(records: Iterable[Table]) -> list[str]:
    """List the dotted names of the options that differ between the runs, in the order of the
    spec."""
    names = dict.fromkeys(name for record in records for name in record.get("varies", {}))
    taken = {
        "run",
        "method",
        "seed",
        "seeds",
        "method.name",
        "status",
        *QUANTITIES,
        *SECONDS_COLUMNS,
    }
    return [name for name in names if name not in taken]


def histories(runs: Iterable[tuple[Table, Mapping[str, np.ndarray]]]) -> pandas.DataFrame:
    """Join the curves of (record, history) pairs in one frame with a row per evaluation."""
    import pandas as pd

    records = []
    parts = []
    for record, history in runs:
        records.append(record)
        parts.append(curves(history))
    more = dict.fromkeys(name for each in parts for name in each if name not in ("round", *CURVES))
    lengths = [len(each["round"]) for each in parts]
    facts = {
        "run": [r["id"] for r in records],
        "method": [r["method"] for r in records],
        "seed": [r["seed"] for r in records],
    }
    facts |= {name: list(map(label_of, records)) for name in _list_label_column(records)}
    facts |= {
        name: [format_value(find_option(r, name)) for r in records]
        for name in list_varying(records)
    }
    kinds = {name: np.int64 if name == "seed" else object for name in facts}
    frame = {
        name: np.repeat(np.array(values, kinds[name]), lengths) for name, values in facts.items()
    }
    for name in ("round", *CURVES, *more):
        columns = [
            each.get(name, np.full(len(each["round"]), np.nan, np.float32)) for each in parts
        ]
        frame[name] = np.concatenate(columns) if columns else np.zeros(0)
    return pd.DataFrame(frame)


def curves(history: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the curves that have one value per evaluation, f[E] each; `round` comes first, as
    i64[E]."""
    rounds = history.get("round", np.zeros(0))
    rest = {name: a for name, a in history.items() if name != "round" and a.shape == rounds.shape}
    return {"round": rounds.astype(np.int64)} | rest


def short(value: object) -> str:
    """Format a number: whole, or with four digits."""
    if not isinstance(value, (float, np.floating)):
        return str(value)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) > 1 else f"{number:.4g}"


def _list_label_column(records: Iterable[Table]) -> list[str]:
    """Return ["label"] if the spec gives some method a label, else []."""
    return ["label"] if any(label_of(record) != record["method"] for record in records) else []


def _list_more_quantities(records: Collection[Table]) -> list[str]:
    """List the quantities that only some runs have: of new clients, drift, a clock, metrics, …"""
    asked = (record.get("config", {}).get("train", {}).get("metrics") for record in records)
    sometimes = [
        name for name in SOMETIMES if any(name in record.get("summary", {}) for record in records)
    ]
    new = {
        name
        for record in records
        for name in record.get("summary", {})
        if name.startswith(NEW_CLIENTS)
    }
    sometimes += sorted(new, key=new_steps) + ["ari_new"] * bool(new)
    return sometimes + list(
        dict.fromkeys(
            f"{name}_last" for names in asked if isinstance(names, list) for name in names
        )
    )


def _make_row(record: Table, varying: list[str], more: list[str]) -> list[Value]:
    """Make the row of a run: options, then numbers."""
    options = [format_value(find_option(record, name)) for name in varying]
    numbers, others = (
        [number(record.get("summary", {}).get(name)) for name in names]
        for names in (QUANTITIES, more)
    )
    seconds = [
        number(record.get("timings", {}).get(name.removeprefix("seconds_")))
        for name in SECONDS_COLUMNS
    ]
    return [
        record["id"],
        record.get("method"),
        record.get("seed"),
        *options,
        record["status"],
        *numbers,
        *seconds,
        *others,
    ]


def find_option(record: Table, name: str) -> Value:
    """Return the value of a dotted option in a run, whether it varies or not; None if the run has
    no such option. `label`: its label."""
    if name == "label":
        return label_of(record)
    if name in record.get("varies", {}):
        return record["varies"][name]
    section, _, key = name.partition(".")
    table = record.get("config", {}).get(section)
    return table.get(key, table.get(key.rpartition(".")[2])) if isinstance(table, dict) else None


def format_value(value: Value) -> Value:
    """Convert the value of an option for a frame: lists and tables become text, so that the frame
    can be grouped by them."""
    return show(value) if isinstance(value, (list, dict)) else value


def to_csv(frame: pandas.DataFrame) -> str:
    """Format the frame as CSV, in which no text is a formula."""
    texts = {
        str(name): [no_formula(cell) if isinstance(cell, str) else cell for cell in frame[name]]
        for name in frame
        if frame[name].dtype.kind == "O"
    }
    return frame.assign(**texts).to_csv(index=False, lineterminator="\n")


def no_formula(text: str) -> str:
    """Return the text of a cell with an apostrophe before it if a spreadsheet would compute it: a
    label may come from somebody else's spec."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def number(value: Value) -> float:
    """Convert the value to a float; NaN if it is missing."""
    return math.nan if value is None else float(value)


def _convert_counts(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Convert the columns of counts to integers, if all of their values are known."""
    for name in ("clusters_last", "rounds", "round_to_target", "bytes_up", "bytes_down"):
        if len(frame) and np.isfinite(frame[name]).all():
            frame[name] = frame[name].astype(np.int64)
    return frame
