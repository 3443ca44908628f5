"""Make data frames of records and histories of runs: a row per run, or a row per evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cfljax.registry.options import Table, Value, show
from cfljax.store.quantities import QUANTITIES, SummaryQuantity, list_quantities, score_of
from cfljax.store.rows import label_of

if TYPE_CHECKING:
    import pandas

CURVES = (
    *("accuracy", "accuracy_worst10", "accuracy_client_std", "loss"),
    *("ari", "nmi", "purity", "clusters", "bytes_up", "bytes_down"),
)
"""Columns of the history frame after `round`; the diagnostics of methods and the user's metrics
follow."""


def summaries(records: Collection[Table]) -> pandas.DataFrame:
    """Make the frame of `Results.to_pandas`: a row per run."""
    import pandas as pd

    options = [*_list_label_column(records), *list_varying(records)]
    columns = _list_columns(records)
    names = [each.key for each in columns]
    rows = [_make_row(record, options, columns) for record in records]
    frame = pd.DataFrame(rows, columns=["run", "method", "seed", *options, "status", *names])
    frame = frame.astype(dict.fromkeys(names, float))
    for each in columns:
        # Counts are integers if all are known
        counted = each.frame == "always" and each.kind in ("count", "bytes")
        if counted and len(frame) and np.isfinite(frame[each.key]).all():
            frame[each.key] = frame[each.key].astype(np.int64)
    return frame


def overview(records: Collection[Table]) -> pandas.DataFrame:
    """Return the first 20 rows of that frame with the columns that fit a screen."""
    shown = ["run", "method", "seed", *_list_label_column(records), *list_varying(records)]
    numbers = [each.key for each in _list_columns(records) if "line" in each.shown]
    frame = summaries(records)[[*shown, "status", *numbers]].head(20).copy()
    for name in numbers:
        frame[name] = [short(value) for value in frame[name]]
    return frame


def list_varying(records: Iterable[Table]) -> list[str]:
    """List the dotted names of the options that differ between the runs, in the order of the
    spec."""
    names = dict.fromkeys(name for record in records for name in record.get("varies", {}))
    taken = {"run", "method", "seed", "seeds", "method.name", "status", *QUANTITIES}
    return [name for name in names if name not in taken]


def histories(runs: Iterable[tuple[Table, Mapping[str, np.ndarray]]]) -> pandas.DataFrame:
    """Join the curves of (record, history) pairs in one frame with a row per evaluation."""
    import pandas as pd

    records = []
    parts = []
    for record, history in runs:
        records.append(record)
        parts.append(curves(history))
    scores = list(dict.fromkeys(map(score_of, records))) or ["accuracy"]
    first = dict.fromkeys(name.replace("accuracy", score) for name in CURVES for score in scores)
    more = dict.fromkeys(name for each in parts for name in each if name not in ("round", *first))
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
    for name in ("round", *first, *more):
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


def _list_columns(records: Collection[Table]) -> list[SummaryQuantity]:
    """List the quantities that all runs have, then what only some have (of new clients, drift, a
    clock, …), then the metrics that `train.metrics` names."""
    known = {name for record in records for name in record.get("summary", {})}
    scores = dict.fromkeys(score_of(record) for record in records if record.get("summary"))
    every = list_quantities(known, scores or ("accuracy",))
    asked = (record.get("config", {}).get("train", {}).get("metrics") for record in records)
    metrics = dict.fromkeys(name for names in asked if isinstance(names, list) for name in names)
    return [
        *(each for each in every if each.frame == "always"),
        *(each for each in every if each.frame == "known" and each.key in known),
        *(SummaryQuantity(f"{name}_last", "a metric of the user") for name in metrics),
    ]


def _make_row(record: Table, varying: list[str], columns: list[SummaryQuantity]) -> list[Value]:
    """Make the row of a run: options, then numbers."""
    return [
        record["id"],
        record.get("method"),
        record.get("seed"),
        *(format_value(find_option(record, name)) for name in varying),
        record["status"],
        *(each.value(record) for each in columns),
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
