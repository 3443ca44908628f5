"""Train runs up to a rung from where an earlier one left them. Each run has a checkpoint of its
own, because other runs may share its program at the next rung."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from cfljax.config import Run
from cfljax.devices.machine import Machine
from cfljax.engine.resume import Checkpoint, join_runs, take_run
from cfljax.errors import StoreError
from cfljax.experiment import batching
from cfljax.launch.batch import OnProgress, SplitBatch, Unit, run_batch
from cfljax.launch.checkpoints import Checkpoints, to_arrays
from cfljax.store import Store
from cfljax.store.quantities import number


class Curve(NamedTuple):
    """A quantity of a run so far."""

    rounds: list[int]
    values: list[float]
    # `failed`, or `lost` where no update of a round was finite; else "". A choice may not look at
    # the test loss.
    ended: str = ""
    whole: bool = False
    """Whether the run is on record and its last value is finite: it has no more rounds to come, be
    they fewer than the rung's."""


class PerRunCheckpoints(Checkpoints):
    """The checkpoints of the runs of a batch, each by itself. One is kept at the pause, whenever
    the last one was."""

    def __init__(self, store: Store, batch: batching.Batch, until: int):
        super().__init__(store, batch.id)
        self.runs = batch.runs
        self.width = batch.width
        self.until = until
        self.done = 0

    def save(self, make: Callable[[], Checkpoint]) -> None:
        """Do as for a batch, and always at the pause."""
        if self.done >= self.until:
            self.last = -np.inf
        super().save(make)

    def _write(self, checkpoint: Checkpoint) -> None:
        for at, run in enumerate(self.runs):
            self.store.save_checkpoint(run.id, *to_arrays(take_run(checkpoint, at, self.width)))

    def refuse(self, why: str) -> None:
        """Set the checkpoints of all runs aside."""
        for run in self.runs:
            self.store.set_aside_checkpoint(run.id, why)

    def load(self) -> Checkpoint | None:
        """Join the checkpoints of the runs to one; None if one of them has no usable checkpoint."""
        each = [Checkpoints(self.store, run.id).load() for run in self.runs]
        known = [checkpoint for checkpoint in each if checkpoint is not None]
        if len(known) < len(each) or len({checkpoint.done for checkpoint in known}) > 1:
            return None
        return join_runs(known, self.width)


class Climber(NamedTuple):
    """Trains runs up to rungs."""

    store: Store
    machine: Machine
    keep: str
    metric: str
    # The most runs of a batch
    limit: int | Callable[[list[Run]], int]
    # Is called with a batch that begins, the rounds that it has made, and those that it goes on to
    progress: Callable[[batching.Batch, int, int], OnProgress] | None = None
    # Is called with each run that has ended
    ended: Callable[[Unit], None] | None = None

    def climb(
        self,
        runs: Iterable[Run],
        until: int,
        order: Callable[[list[batching.Batch]], list[batching.Batch]] = list,
    ) -> None:
        """Train the runs for `until` rounds in all: they are on record, or have a checkpoint there.
        Batches that another process is working on are left to it, and taken over if it dies.
        `order`: in which batches are taken."""
        runs = list(runs)
        while todo := self._make_batches(runs, until):
            taken = [self._take(batch, until) for batch in order(todo)]
            if not any(taken):
                time.sleep(0.5)

    def _make_batches(self, runs: list[Run], until: int) -> list[batching.Batch]:
        """Batch the runs that have not come so far; the runs of a batch have made the same number
        of rounds."""
        by_done: dict[int, list[Run]] = {}
        for run in runs:
            if (done := self.count_rounds(run)) < until:
                by_done.setdefault(done, []).append(run)
        return [
            batch
            for group in by_done.values()
            for batch in batching.make_batches(group, self.limit)
        ]

    def _take(self, batch: batching.Batch, until: int) -> bool:
        """Train a batch up to the rung; return False if another process is training it."""
        with self.store.claim(batch.id) as claimed:
            if claimed and any(self.count_rounds(run) < until for run in batch.runs):
                self._train(batch, until)
                if any(self.count_rounds(run) < until for run in batch.runs):
                    raise StoreError(
                        f"{self.store.folder}: cannot write the checkpoint of a run, which "
                        "the search needs to continue"
                    )
            return bool(claimed)

    def count_rounds(self, run: Run) -> int:
        """Return the number of rounds that a run has made."""
        if self.store.has(run.id):
            return run.train.rounds
        saved = self.store.load_checkpoint(run.id)
        return 0 if saved is None else int(saved[1].get("done", 0))

    def _train(self, batch: batching.Batch, until: int) -> None:
        """Train a batch up to the rung, in halves if it is too large, and write the units of runs
        that have ended."""
        checkpoints = PerRunCheckpoints(self.store, batch, until)
        report = None
        if self.progress is not None:
            report = self.progress(batch, self.count_rounds(batch.first), until)

        def note(done: int, accuracy: float | None) -> None:
            checkpoints.done = done
            if report is not None:
                report(done, accuracy)

        try:
            units = run_batch(batch, self.machine, self.keep, note, checkpoints, until=until)
        except SplitBatch:
            for half in batching.split_batch(batch):
                self._train(half, until)
            return
        for record, arrays in units:
            if not self.store.has(record["id"]):
                self.store.write(record["id"], record, arrays)
            self.store.remove_checkpoint(record["id"])
            if self.ended is not None:
                self.ended((record, arrays))

    def read_curve(self, run: Run, until: int) -> Curve:
        """Read the metric of a run up to a rung, from its record or its checkpoint, and nothing
        else of these."""
        if self.store.has(run.id):
            record, arrays = self.store.read(run.id, ("history/round", f"history/{self.metric}"))
            if record["status"] == "failed":
                return Curve([], [], "failed")
            rounds = arrays["history/round"]
            values = arrays.get(f"history/{self.metric}")
            # Clients that fine-tune their models at the end are judged by what they end with
            finetuned = number(record["summary"].get(f"{self.metric}_finetuned"))
            if values is not None and math.isfinite(finetuned):
                values = np.append(values[:-1], finetuned)
            lost = False
            whole = True
        else:
            saved = self.store.load_checkpoint(run.id)
            if saved is None:
                raise StoreError(
                    f"{self.store.folder}: run {run.id} has no usable checkpoint at round {until}; "
                    "start the search again, which trains the run again"
                )
            arrays, meta = saved
            whole = False
            rounds = arrays["rows/round"][0]
            values = arrays[f"rows/{self.metric}"][0] if f"rows/{self.metric}" in arrays else None
            lost = bool(arrays[f"carry/{meta['carry'].index('.lost_at')}"][0] >= 0)
        if values is None:
            values = np.full(len(rounds), np.nan)
        so_far = values[rounds <= until]
        whole = whole and bool(np.isfinite(so_far[-1:]).all())
        here = (rounds <= until) & np.isfinite(values)
        return Curve(
            [int(r) for r in rounds[here]],
            [float(v) for v in values[here]],
            "lost" if lost else "",
            whole,
        )
