"""Results in Python: one run (`Result`), and a folder of them (`Results`, what `cfljax.load(DIR)` returns)."""

from __future__ import annotations

import html
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfljax.errors import StoreError
from cfljax.options import show
from cfljax.store import QUANTITIES, SECONDS, DamagedWarning, Store, planned
from cfljax.store.atomic import storing, write_bytes

if TYPE_CHECKING:
    import pandas

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

_HEADLINES = ("accuracy_worst10", "accuracy_client_std", "loss_last", "ari_last", "clusters_last", "bytes_up", "bytes_down")
_DRAWN = 60  # runs that a notebook's small plots look at


class Result:
    """One run: what it was asked (`config`), what came out (`summary`), and its arrays."""

    def __init__(self, record: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.record, self.arrays = record, arrays

    @property
    def run(self) -> str:
        """The id of the run."""
        return str(self.record.get("id", ""))

    @property
    def method(self) -> str:
        """Registry name of the method."""
        return str(self.record["method"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.record["seed"])

    @property
    def status(self) -> str:
        """`done`, `diverged` or `failed`."""
        return str(self.record["status"])

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.record["config"]

    @property
    def summary(self) -> dict[str, Any]:
        """Headline numbers: accuracy_max, accuracy_last, … (fractions, not per cent)."""
        return self.record["summary"]

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Quantity -> f32[T'], a value per evaluation; `history["round"]` says which."""
        return {name.removeprefix("history/"): a for name, a in self.arrays.items() if name.startswith("history/")}

    @property
    def labels(self) -> np.ndarray | None:
        """i32[C]: the cluster of each client at the end, −1 for none; None when labels were not kept."""
        kept = self.arrays.get("labels")
        if kept is None:
            return None
        last = kept[-1] if kept.ndim == 2 else kept
        return last.astype(np.int32)

    @property
    def labels_history(self) -> np.ndarray | None:
        """i16 or i32[T', C]: the clusters at each evaluation (above 10,000 clients only the last)."""
        kept = self.arrays.get("labels")
        return kept[None] if kept is not None and kept.ndim == 1 else kept

    @property
    def client_accuracy(self) -> np.ndarray | None:
        """f32[C]: accuracy of each client at the end, NaN without test samples."""
        return self.arrays.get("client_accuracy")

    @property
    def models(self) -> np.ndarray | None:
        """f32[K, d]: the models at the end; None unless they were kept (`--keep models`)."""
        return self.arrays.get("models")

    @property
    def diag(self) -> dict[str, np.ndarray]:
        """`<method>/<name>` -> the method's own diagnostics."""
        return {name.removeprefix("diag/"): a for name, a in self.arrays.items() if name.startswith("diag/")}

    def to_pandas(self) -> pandas.DataFrame:
        """The history as a frame: a row per evaluation."""
        import pandas as pd

        return pd.DataFrame(_curves(self.history))

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{k}={v}' for k, v in self._facts().items())})"

    def _repr_html_(self) -> str:
        from cfljax.sparkline import plots

        rows = self._facts() | {k: _short(v) for k, v in self.summary.items() if k in _HEADLINES}
        cells = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>" for k, v in rows.items())
        return f"<table>{cells}</table>{plots({'': self.history})}"

    def _facts(self) -> dict[str, str]:
        facts = {"method": self.method, "seed": str(self.seed), "status": self.status}
        facts |= {name: show(value) for name, value in self.record.get("varies", {}).items()}
        for name in ("accuracy_max", "accuracy_last", "rounds"):
            if name in self.summary:
                facts[name] = _short(self.summary[name])
        return facts


class Results:
    """The finished runs of a results folder. Records are read at once, arrays when they are asked for.

    The runs are those of the folder's plan, in its order; runs of an earlier spec are left out unless `everything`."""

    def __init__(self, folder: str | os.PathLike[str], everything: bool = False):
        self.store = Store(folder, read_only=True)
        found = self.store.records()
        plan = planned(self.store) or []
        order = [name for name in plan if name in found]
        rest = [name for name in found if name not in set(order)]
        keep_rest = everything or not plan
        self.records = {name: found[name] for name in order + (rest if keep_rest else [])}
        self.left_out = 0 if keep_rest else len(rest)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Result]:
        return self.results()

    def __getitem__(self, run: str) -> Result:
        """The run of that id."""
        if run not in self.records:
            raise StoreError(f"{self.store.folder}: there is no run {run!r} among its {len(self)}; see to_pandas()['run']")
        return Result(*self.store.read(run))

    def results(self) -> Iterator[Result]:
        """Every run with its arrays, one after the other; a damaged one is left out with a warning."""
        for _, result in self._each(("",)):
            yield result

    def _each(self, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Result]]:
        for run in self.records:
            try:
                unit = self.store.read(run, prefixes)
            except StoreError as error:
                warnings.warn(str(error), DamagedWarning, stacklevel=3)
                continue
            yield run, Result(*unit)

    def to_pandas(self) -> pandas.DataFrame:
        """A row per run: run, method, seed, the label where the spec gives some, every option that varies, status, the summary
        quantities, the seconds."""
        import pandas as pd

        varying = self._labelled() + self.varying()
        own = self._own_metrics()
        rows = [_row(run, record, varying, own) for run, record in self.records.items()]
        frame = pd.DataFrame(rows, columns=["run", "method", "seed", *varying, "status", *QUANTITIES, *SECONDS, *own])
        return _whole(frame.astype(dict.fromkeys((*QUANTITIES, *SECONDS, *own), float)))

    def _labelled(self) -> list[str]:
        given = any(record.get("label", record["method"]) != record["method"] for record in self.records.values())
        return ["label"] if given else []

    def _own_metrics(self) -> list[str]:
        """Columns of the user's own metrics; before them `epsilon`, where runs have one."""
        asked = (record.get("config", {}).get("train", {}).get("metrics") for record in self.records.values())
        spent = ["epsilon"] if any("epsilon" in record.get("summary", {}) for record in self.records.values()) else []
        return spent + list(dict.fromkeys(f"{name}_last" for names in asked if isinstance(names, list) for name in names))

    def varying(self) -> list[str]:
        """Dotted names of the options that vary, in the order of the spec."""
        names = dict.fromkeys(name for record in self.records.values() for name in record.get("varies", {}))
        taken = {"run", "method", "seed", "seeds", "method.name", "status", *QUANTITIES, *SECONDS}
        return [name for name in names if name not in taken]

    def history(self) -> pandas.DataFrame:
        """The curves of all runs in one tidy frame: run, round, accuracy, … with a row per evaluation."""
        import pandas as pd

        runs, curves = [], []
        for run, result in self._each(("history/",)):
            runs.append(run)
            curves.append(_curves(result.history))
        own = dict.fromkeys(name for each in curves for name in each if name not in ("round", *CURVES))
        lengths = [len(each["round"]) for each in curves]
        frame = {"run": np.repeat(np.array(runs, object), lengths)}
        for name in ("round", *CURVES, *own):
            parts = [each.get(name, np.full(len(each["round"]), np.nan, np.float32)) for each in curves]
            frame[name] = np.concatenate(parts) if parts else np.zeros(0)
        return pd.DataFrame(frame)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The summary frame as a CSV file."""
        write_bytes(Path(path), self.to_pandas().to_csv(index=False, lineterminator="\n").encode())

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """The summary frame as a Parquet file."""
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise StoreError(f'{path}: Parquet needs pyarrow: pip install "cfljax[parquet]"') from error
        with storing(Path(path)):
            write_bytes(Path(path), self.to_pandas().to_parquet(index=False, engine="pyarrow"))

    def __repr__(self) -> str:
        return f"{self._title()}\n{self._overview().to_string(index=False)}" if len(self) else self._title()

    def _repr_html_(self) -> str:
        from cfljax.sparkline import plots

        table = self._overview().to_html(index=False) if len(self) else ""
        curves: dict[str, dict[str, np.ndarray]] = {}
        for number, (_, result) in enumerate(self._each(("history/",))):
            if number < _DRAWN and result.status == "done":  # one run of each method stands for it
                curves.setdefault(str(result.record.get("label") or result.method), result.history)
        return f"<p>{html.escape(self._title())}</p>{table}{plots(curves)}"

    def _title(self) -> str:
        left = f", {self.left_out} of an earlier spec left out" if self.left_out else ""
        return f"Results({str(self.store.folder)!r}): {len(self)} run{'' if len(self) == 1 else 's'}{left}"

    def _overview(self) -> pandas.DataFrame:
        frame = self.to_pandas()
        shown = ["run", "method", "seed", *self._labelled(), *self.varying(), "status", "accuracy_max", "accuracy_last", "rounds"]
        short = frame[shown].head(20).copy()
        for name in ("accuracy_max", "accuracy_last", "rounds"):
            short[name] = [_short(value) for value in short[name]]
        return short


def _row(run: str, record: dict[str, Any], varying: list[str], own: list[str]) -> list[Any]:
    options = [_cell(_option(record, name)) for name in varying]
    numbers, mine = ([_number(record.get("summary", {}).get(name)) for name in names] for names in (QUANTITIES, own))
    seconds = [_number(record.get("timings", {}).get(name.removeprefix("seconds_"))) for name in SECONDS]
    return [run, record.get("method"), record.get("seed"), *options, record["status"], *numbers, *seconds, *mine]


def _option(record: dict[str, Any], name: str) -> Any:
    """The value of a dotted option: of those that vary, or fixed in this run's configuration; None where it has none; the label."""
    if name == "label":
        return record.get("label", record["method"])
    if name in record.get("varies", {}):
        return record["varies"][name]
    value: Any = record.get("config", {})
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


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


def _short(value: Any) -> str:
    if not isinstance(value, (float, np.floating)):
        return str(value)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) > 1 else f"{number:.4g}"


def _curves(history: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`round` first and as an integer, then the curves with one value per evaluation."""
    rounds = history.get("round", np.zeros(0))
    rest = {name: a for name, a in history.items() if name != "round" and a.shape == rounds.shape}
    return {"round": rounds.astype(np.int64)} | rest
