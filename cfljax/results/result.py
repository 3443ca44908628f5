"""Results in Python: one run (`Result`), and a folder of runs (`Results`, which `cfljax.load(DIR)`
returns)."""

from __future__ import annotations

import copy
import html
import importlib
import os
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from cfljax.errors import StoreError
from cfljax.registry.options import Table, Value, show
from cfljax.results import choices, frames
from cfljax.results.models import KeptModels
from cfljax.store import QUANTITIES, DamagedWarning, Store, summarise
from cfljax.store.atomic import store_errors, write_bytes
from cfljax.store.quantities import list_quantities, score_of
from cfljax.store.rows import label_of, make_rows, unify_paths

if TYPE_CHECKING:
    import pandas


class Result(KeptModels):
    """One run: its configuration (`config`), its headline numbers (`summary`), and its arrays."""

    @property
    def method(self) -> str:
        """The name of the method in the registry."""
        return str(self.record["method"])

    @property
    def label(self) -> str:
        """The label that the spec gives the method; the method's name if it gives none."""
        return label_of(self.record)

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.record["seed"])

    @property
    def status(self) -> str:
        """`done`, `diverged` or `failed`."""
        return str(self.record["status"])

    @property
    def stopped_at(self) -> int | None:
        """The round in which a callback has ended the run; None: none has."""
        return self.record.get("stopped_at")

    @property
    def config(self) -> Table:
        """The resolved configuration."""
        return self.record["config"]

    @property
    def summary(self) -> Table:
        """Headline numbers: accuracy_max, accuracy_last, … (fractions, not per cent)."""
        return self.record["summary"]

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Quantity -> f32[E], a value per evaluation; `history["round"]` has the rounds."""
        return {
            name.removeprefix("history/"): a
            for name, a in self.arrays.items()
            if name.startswith("history/")
        }

    @property
    def client_accuracy(self) -> np.ndarray | None:
        """f32[C]: accuracy of each client at the end, NaN for clients without test samples."""
        return self.arrays.get("client_accuracy")

    @property
    def diag(self) -> dict[str, np.ndarray]:
        """`<method>/<name>` -> a diagnostic of the method."""
        return {
            name.removeprefix("diag/"): a
            for name, a in self.arrays.items()
            if name.startswith("diag/")
        }

    @property
    def groups(self) -> np.ndarray | None:
        """i32[E, C]: each client's true group at each evaluation; one row where clients keep their
        groups, or only the last labels were kept. None: no labels were."""
        if (groups := self.arrays.get("groups", self.arrays.get("group"))) is None:
            return None
        return np.atleast_2d(groups).astype(np.int32)

    def more(
        self,
        rounds: int,
        *,
        progress: bool | None = None,
        callback: Callable[[int, dict[str, float]], object] | None = None,
    ) -> Result:
        """Continue the run, and return the result of the longer run: the same bits as a run of that
        length, whose first rounds need not be computed.

        It continues from the last state, which `cfljax.run` and sweeps with `keep="state"` keep. If
        the longer run is computed by another plan (a very short run is compiled in another way), it
        starts from round 0, and a warning says so.

        Args:
            rounds: how many rounds are added.
            progress: as in `cfljax.run`.
            callback: as in `cfljax.run`; it is called at the evaluations of the new rounds."""
        # By its name, as what computes stands above what shows results
        api = importlib.import_module("cfljax.api")
        longer: Result = api.continue_run(self, rounds, progress, callback)
        return longer

    def to_pandas(self) -> pandas.DataFrame:
        """Return the history as a frame: a row per evaluation."""
        import pandas as pd

        return pd.DataFrame(frames.curves(self.history))

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{k}={v}' for k, v in self._facts().items())})"

    def _repr_html_(self) -> str:
        rows = self._facts() | self._list_numbers("notebook")
        cells = "".join(
            f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>"
            for k, v in rows.items()
        )
        return f"<table>{cells}</table>"

    def _facts(self) -> dict[str, str]:
        facts = {"method": self.method, "seed": str(self.seed), "status": self.status}
        if self.stopped_at is not None:
            facts["stopped_at"] = str(self.stopped_at)
        facts |= {name: show(value) for name, value in self.record.get("varies", {}).items()}
        return facts | self._list_numbers("line")

    def _list_numbers(self, place: str) -> dict[str, str]:
        """Format the quantities that are shown in this place."""
        scores = [score_of(self.record)]
        quantities = {each.key: each for each in list_quantities((), scores)}
        return {
            name: frames.short(self.summary[name])
            for name, each in quantities.items()
            if place in each.shown and name in self.summary
        }


def _list_to_target() -> list[str]:
    """List the quantities that depend on the target."""
    return [name for name, each in QUANTITIES.items() if each.reaches == "target"]


class Results:
    """The finished runs of a results folder. Records are read at once, arrays when they are asked
    for.

    The runs are the runs of the folder's plan, in its order, with `everything` also runs of an
    earlier spec. Their labels and the options that vary come from the plan's spec, not from what an
    earlier start has recorded. `target`: the accuracy to which rounds and bytes are counted.
    `sweep`: the sweep that a start has asked for (`Spec.shown`), instead of the folder's plan,
    which another start may have replaced since."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        everything: bool = False,
        target: float | None = None,
        sweep: Table | None = None,
    ):
        self.store = Store(folder, read_only=True)
        records = self.store.records()
        self.target = target
        self.named: dict[str, Table] = {}
        self.sweep = table = sweep or self.store.read_plan() or {}
        plan = table.get("units") or []
        order = [name for name in plan if name in records]
        rest = [name for name in records if name not in set(order)]
        keep_rest = everything or not plan
        (self.records,) = unify_paths(
            {name: records[name] for name in order + (rest if keep_rest else [])}
        )
        self._count_to_target()
        self.rows = make_rows(self.records, table.get("labels"))
        """The records with the labels and the varying options of the plan's spec. A run that two
        rows of the plan share is listed twice."""
        first = {record["id"]: record for record in reversed(self.rows)}
        self.named = {
            run: {key: first[run][key] for key in ("label", "varies")} for run in self.records
        }
        """Run -> its label and its varying options, as tables show them."""
        self.left_out = 0 if keep_rest else len(rest)
        # The number of runs that `filter` or `best` has chosen these from; None: these are all
        self.chosen_from: int | None = None
        # Whether `filter` was given an order of the methods, which tables and figures then keep
        self.ordered = False

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Result]:
        return self.results()

    @typing.overload
    def __getitem__(self, run: str | int) -> Result: ...

    @typing.overload
    def __getitem__(self, run: slice) -> list[Result]: ...

    def __getitem__(self, run: str | int | slice) -> Result | list[Result]:
        """Return the run of that id or at that position, or the runs of a slice of positions."""
        if isinstance(run, slice):
            return [self[name] for name in list(self.records)[run]]
        name = run
        if isinstance(run, int) and -len(self) <= run < len(self):
            name = list(self.records)[run]
        if not isinstance(name, str) or name not in self.records:
            known = {row[key] for row in self.rows for key in ("method", "label") if key in row}
            where = "see to_pandas()['run']"
            if isinstance(run, str) and run in known:
                where = f"those of {run} are results.filter(method={run!r})"
            raise StoreError(
                f"{self.store.folder}: there is no run {run!r} among its {len(self)} runs; {where}"
            )
        return self._make_result(name, *self.store.read(name))

    def results(self) -> Iterator[Result]:
        """Yield every run with its arrays. A damaged run is left out, with a warning."""
        return self._read_all("")

    def _read_all(self, prefix: str) -> Iterator[Result]:
        for run in self.records:
            try:
                yield self._make_result(run, *self.store.read(run, (prefix,)))
            except StoreError as error:
                warnings.warn(str(error), DamagedWarning, stacklevel=2)

    def _make_result(self, run: str, record: Table, arrays: dict[str, np.ndarray]) -> Result:
        """Make a Result with the summary to this target and the names of the plan."""
        counted = {
            name: self.records[run]["summary"].get(name)
            for name in _list_to_target()
            if name in record["summary"]
        }
        return Result(
            record | {"summary": record["summary"] | counted} | self.named.get(run, {}), arrays
        )

    def _count_to_target(self) -> None:
        """Set the rounds and bytes to the target in all records, from the histories: what is
        recorded may be for another target."""
        names = _list_to_target()
        self.records = {
            run: record
            | {"summary": {k: v for k, v in record["summary"].items() if k not in names}}
            for run, record in self.records.items()
        }
        if self.target is None:
            return
        for result in self._read_all("history/"):
            counted = summarise(result.history, target=self.target, score=score_of(result.record))
            self.records[result.run]["summary"] |= {
                name: counted[name] for name in names if name in counted
            }

    def to_pandas(self) -> pandas.DataFrame:
        """Return a row per run: run, method, seed, the label if the spec gives some, every option
        that varies, status, the summary quantities, the seconds."""
        return frames.summaries(self.rows)

    def filter(
        self,
        *,
        method: str | Sequence[str] | None = None,
        seed: int | Iterable[int] | None = None,
        **options: Value | Sequence[Value],
    ) -> Self:
        """Return the results of some of the runs: `filter(method="ifca", seed=range(3), lr=0.1)`.

        Each argument is one value or several, and a run must match all arguments. What the new
        results compute (`best`, `table`, `plot`, …) is of their runs alone: a test compares with
        the best of them.

        Args:
            method: names of methods, or labels that the spec gives. The results have the methods in
                this order.
            seed: seeds of the runs.
            options: any other column of `to_pandas()` that says what a run is: `status="done"`,
                `label=`, and options that vary, by their last word (`lr=0.1`) or in full
                (`**{"train.lr": 0.1}`)."""
        wanted = {"method": method, "seed": seed} | options
        given = {name: values for name, values in wanted.items() if values is not None}
        found = self.select_rows(choices.choose_rows(self.rows, given))
        found.ordered = self.ordered or method is not None
        return found

    def select_rows(self, rows: list[Table]) -> Self:
        """Return the results of these rows alone, as if they were all of the plan."""
        found = copy.copy(self)
        found.rows = rows
        found.records = {row["id"]: self.records[row["id"]] for row in rows}
        found.named = {run: self.named[run] for run in found.records}
        found.sweep = self.sweep | {
            "units": list(found.records),
            "labels": [choices.make_plan_row(row) for row in rows],
        }
        found.left_out = 0
        found.chosen_from = self.chosen_from or len(self)
        return found

    def varying(self) -> list[str]:
        """List the dotted names of the options that vary, in the order of the spec."""
        return frames.list_varying(self.rows)

    def history(self) -> pandas.DataFrame:
        """Return the curves of all runs in one tidy frame: run, method, seed, round, accuracy, …
        with a row per evaluation. A run that two rows of the plan share is there twice, as in
        `to_pandas`. A run that ended early (`train.stop`) has no rows after its end, so that a mean
        by rounds is one of the other runs there; `plot` lets it keep its last value."""
        rows: dict[str, list[Table]] = {}
        for row in self.rows:
            rows.setdefault(row["id"], []).append(row)
        return frames.histories(
            (row, result.history)
            for result in self._read_all("history/")
            for row in rows[result.run]
        )

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the summary frame as a CSV file. Texts that a spreadsheet would take for a formula
        begin with an apostrophe there."""
        write_bytes(Path(path), frames.to_csv(self.to_pandas()).encode())

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the summary frame as a Parquet file."""
        with store_errors(Path(path)):
            write_bytes(Path(path), self.to_pandas().to_parquet(index=False, engine="pyarrow"))

    def __repr__(self) -> str:
        return (
            f"{self._title()}\n{frames.overview(self.rows).to_string(index=False)}"
            if len(self)
            else self._title()
        )

    def _repr_html_(self) -> str:
        table = frames.overview(self.rows).to_html(index=False) if len(self) else ""
        return f"<p>{html.escape(self._title())}</p>{table}"

    def _title(self) -> str:
        left = f", {self.left_out} of an earlier spec left out" if self.left_out else ""
        number = len(self) if self.chosen_from is None else self.chosen_from
        chosen = "" if self.chosen_from is None else f"{len(self)} of "
        return (
            f"Results({str(self.store.folder)!r}): {chosen}{number} "
            f"run{'' if number == 1 else 's'}{left}"
        )
