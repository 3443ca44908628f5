"""One start against several: a folder that grew in steps, its runs interrupted at random rounds, and one that was made at once."""

from __future__ import annotations

import difflib
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import cfljax
from cfljax.api import one_run
from cfljax.config import read_spec
from cfljax.engine.clock import Clock
from cfljax.launch.checkpoints import Checkpoints
from cfljax.launch.sweep import Options, carry_out
from cfljax.report import tables
from cfljax.report.comparison import COLUMNS, rows
from cfljax.report.configurations import collect
from cfljax.results.result import Results
from cfljax.store import SECONDS, DamagedWarning, Store
from drills.common import Tally
from drills.differential.specs import Table

KEPT = ("id", "method", "seed", "config", "contents", "status", "diverged_at", "error", "plan", "summary")
"""What records have that does not tell of times or of the spec that was started."""
TARGET = 0.4
"""An accuracy that some runs reach."""
MOST = 4
"""Interruptions of one start."""


class Interrupted(KeyboardInterrupt):
    """As by Ctrl-C, right after a checkpoint."""


def problems(steps: list[Table], draw: Random, tally: Tally) -> list[str]:
    """What the two folders do not have in common, bit for bit, and what one of the runs has not when it is done alone."""
    with tempfile.TemporaryDirectory(prefix="cfljax-drill-") as place, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        grown, once = Path(place) / "grown", Path(place) / "once"
        for step in steps:
            tally.count("interruptions", in_parts(step, grown, draw))
        carry_out(read_spec(steps[-1]), Store(once), Options(quiet=True))
        found = unlike(cfljax.load(once, target=TARGET), cfljax.load(grown, target=TARGET)) + alone(cfljax.load(once), draw)
    bad = (w for w in told if issubclass(w.category, DamagedWarning))
    return found + [f"told: {w.message}" for w in bad]


def in_parts(table: Table, folder: Path, draw: Random) -> int:
    """A sweep that is interrupted some times, after a random checkpoint each, and gone on with; how often it was."""
    for times in range(MOST):
        try:
            with interruptions(draw, 1 + draw.randrange(4)):
                carry_out(read_spec(table), Store(folder), Options(quiet=True))
            return times
        except Interrupted:
            pass
    with interruptions(draw, None):
        carry_out(read_spec(table), Store(folder), Options(quiet=True))
    return MOST


@contextmanager
def interruptions(draw: Random, after: int | None) -> Iterator[None]:
    """Looks at a batch after one to three rounds, a checkpoint at each; the one of that number is the last before the end."""
    save, count = Checkpoints.save, [0]

    def last(self: Checkpoints, make: Any) -> None:
        save(self, make)
        count[0] += 1
        if count[0] == after:
            raise Interrupted

    with ExitStack() as patched:
        patched.enter_context(mock.patch.dict("os.environ", {"CFLJAX_CHECKPOINT": "0"}))
        patched.enter_context(mock.patch.object(Checkpoints, "save", last))
        patched.enter_context(mock.patch.object(Clock, "rounds_ahead", lambda self: draw.randint(1, 3)))
        yield


def unlike(one: Results, other: Results) -> list[str]:
    """What of two folders is not the same for whoever reads them: arrays, records, frames, tables."""
    if list(one.records) != list(other.records):
        return [f"runs {list(one.records)} and {list(other.records)}"]
    found = []
    for run in one.records:
        a, b = one[run], other[run]
        found += [f"{run}: {name} differs" for name in unlike_arrays(a.arrays, b.arrays)]
        found += [f"{run}: {k} is {_of(a, k)!r} and {_of(b, k)!r}" for k in KEPT if repr(_of(a, k)) != repr(_of(b, k))]
        found += [f"{run}: called {a.label!r} and {b.label!r}"] if a.label != b.label else []
    frames = {"runs": [each.to_pandas().drop(columns=list(SECONDS)) for each in (one, other)]}
    frames["history"] = [each.history() for each in (one, other)]
    frames |= {f"table {name}": [write(each) for each in (one, other)] for name, write in TABLES.items()}
    shown = {name: [_text(each).splitlines() for each in pair] for name, pair in frames.items()}
    return found + [f"{name}: {_difference(a, b)}" for name, (a, b) in shown.items() if a != b]


def _of(result: Any, key: str) -> Any:
    return result.record.get(key)


def _difference(a: list[str], b: list[str]) -> str:
    lines = list(difflib.unified_diff(a, b, "once", "grown", n=0, lineterm=""))[2:]
    return " / ".join(line for line in lines if not line.startswith("@@"))[:600]


def _text(shown: Any) -> str:
    return shown if isinstance(shown, str) else f"{shown.dtypes.to_dict()}\n{shown.to_csv()}"


def _rows(results: Results) -> list[Any]:
    return rows(collect([results]).configurations, [column for column in COLUMNS if column.key != "seconds"])


TABLES = {
    "in the terminal": lambda results: tables.terminal(_rows(results)),
    "Markdown": lambda results: tables.markdown(_rows(results)),
    "LaTeX": lambda results: tables.latex(_rows(results)),
}


def unlike_arrays(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Names of the arrays that are not the same bits."""
    same = {name for name in a.keys() & b.keys() if a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes()}
    return sorted((a.keys() | b.keys()) - same)


def alone(results: Results, draw: Random) -> list[str]:
    """What a run of the folder has not when it is done by itself, by the configuration in its record."""
    run = draw.choice(list(results.records))
    if results.records[run]["status"] == "failed":
        return []
    again, there = one_run(results.records[run]["config"]), results[run]
    found = [] if again.run == run else [f"{run}: is {again.run} by the configuration in its record"]
    arrays = {name: values for name, values in again.arrays.items() if name != "models"}
    return found + [f"{run}: {name} differs where it is done alone" for name in unlike_arrays(arrays, there.arrays)]
