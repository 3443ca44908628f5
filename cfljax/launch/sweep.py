"""A sweep from its runs to a full results folder: what is there already is kept, what is missing is computed."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from cfljax.config import Run, Spec
from cfljax.devices import distributed
from cfljax.devices.mesh import Shape
from cfljax.errors import SpecWarning
from cfljax.experiment import batching
from cfljax.launch import lockstep
from cfljax.launch.batch import InHalves, run_batch
from cfljax.launch.keeper import Keeper
from cfljax.launch.plan_file import batch_limit, entry, settle, unlike
from cfljax.launch.progress import Progress
from cfljax.store import Store


class Options(NamedTuple):
    """How a sweep is carried out; none of it is part of a result."""

    keep: str = "labels"
    """What a unit keeps: "models" (and labels), "labels" or "none"."""
    quiet: bool = False
    retry_failed: bool = False
    launcher: Any = None
    """The launcher's own options, checked."""
    shard: tuple[int, int] | None = None
    """(i, n): do the i-th of n equal parts of the runs and leave the rest to others."""
    mesh: Shape | None = None
    """The devices that runs are dealt to (`--mesh`)."""


class Outcome(NamedTuple):
    """How many runs of the spec ended in which way, those of earlier starts included."""

    done: int
    diverged: int
    failed: int
    computed: int
    """Runs of this start."""


def carry_out(spec: Spec, store: Store, options: Options, limit: int | Callable[[Run], int] | None = None) -> Outcome:
    """Run what the folder lacks, in batches that share a program: of at most `limit` runs, else as many as the device's memory
    holds. Batches that another process is working on are left to it, and taken over if it dies."""
    todo = lay_down(spec, store, options, limit)
    with Progress(sum(map(rounds_of, todo)), sum(len(batch.runs) for batch in todo), options.quiet) as progress:
        for message in (*spec.warnings, *(unlike(store) if todo else [])):
            progress.say(f"cfljax: {message}")
        work(todo, store, options, progress)
    return outcome(spec, store, todo)


def lay_down(
    spec: Spec, store: Store, options: Options, limit: int | Callable[[Run], int] | None = None, threads: int | None = None
) -> list[batching.Batch]:
    """Settle the plan; the batches that are still to do, those of failed runs among them where these are to run again. `threads`:
    what each process computes with, if it is not all cores."""
    with store.claim("plan", wait=True):
        batches = settle(spec, store, batch_limit if limit is None else limit, threads, options.mesh)
        there = store.done(("failed",) if options.retry_failed else (), verify=True)
        if "CFLJAX_WORKER" not in os.environ:  # who has started this process has told it
            _tell_of_less(spec, store, options.keep)
        todo = [batch for batch in _shared(spec, batches, options.shard) if any(run.id not in there for run in batch.runs)]
        if options.retry_failed:  # from here on they are runs like any other: each is computed once, by whoever comes to it
            store.forget_failed([run.id for batch in todo for run in batch.runs])
    return todo


def _tell_of_less(spec: Spec, store: Store, keep: str) -> None:
    """Name in one line how many runs an earlier start has kept less of than this one is to keep: they are not computed again."""
    wanted = {"models": ("models", "labels"), "labels": ("labels",)}.get(keep, ())
    found = [record for run in spec.units() if (record := store.record(run.id)) is not None and record["status"] != "failed"]
    for name in wanted:
        if count := sum(name not in record["arrays"].get("names", [name]) for record in found):
            runs, are = ("run", "is") if count == 1 else ("runs", "are")
            why = f"--keep {keep}: {count} {runs} of an earlier start in {store.folder} kept no {name}"
            told = f"{why}, and {are} not computed again; take another folder to have them"
            warnings.warn(told, SpecWarning, stacklevel=3)
            return


def _shared(spec: Spec, batches: list[batching.Batch], shard: tuple[int, int] | None) -> list[batching.Batch]:
    """The batches of a shard: those whose first run lies in its part of the spec, so that neighbours share programs."""
    if shard is None:
        return batches
    place = {run.id: at for at, run in enumerate(spec.units())}
    return [batch for batch in batches if place[batch.first.id] * shard[1] // len(place) == shard[0]]


def work(todo: list[batching.Batch], store: Store, options: Options, progress: Progress) -> None:
    """Do these batches, whoever does them, until all are done."""
    worker = Worker(store, options, progress)
    while todo:
        others = [batch for batch in todo if not worker.take(batch)]
        todo = [batch for batch in others if not worker.finished(batch)]
        if todo:
            time.sleep(0.5)


def outcome(spec: Spec, store: Store, todo: list[batching.Batch]) -> Outcome:
    """How the runs of the spec have ended; `todo` is what was computed now."""
    records = store.records()
    statuses = [records[run.id]["status"] for run in spec.units() if run.id in records]
    computed = sum(len(batch.runs) for batch in todo)
    return Outcome(statuses.count("done"), statuses.count("diverged"), statuses.count("failed"), computed)


class Worker(NamedTuple):
    """Batches into units."""

    store: Store
    options: Options
    progress: Progress

    def finished(self, batch: batching.Batch) -> bool:
        """Whether all its units are there."""
        return all(self.store.has(run.id) for run in batch.runs)

    def take(self, batch: batching.Batch) -> bool:
        """Do the batch, unless it is done; False when another process is at it."""
        with self.store.claim(batch.id) as mine:
            if not mine:
                return False
            if self.finished(batch):
                self.progress.pass_over(rounds_of(batch))
            else:
                self.compute(batch)
        return True

    def compute(self, batch: batching.Batch) -> None:
        """The batch's units, or those of its halves where it is too large for the device or a run of it raises."""
        told, name = [0], name_of(batch)
        self.progress.start(name, rounds_of(batch))

        def report(done: int, accuracy: float | None) -> None:
            self.progress.update((done - told[0]) * len(batch.runs), accuracy)
            told[0] = done

        keeper = self.keeper(batch)
        try:
            units = run_batch(batch, self.options.keep, report, keeper)
        except InHalves as why:
            self.progress.update(-told[0] * len(batch.runs))
            self.store.remove_checkpoint(batch.id)
            for part in self.split(batch, str(why)):
                self.compute(part)
            return
        for record, arrays in units:
            self.keep(name, record, arrays)
        keeper.remove()
        self.progress.update(rounds_of(batch) - told[0] * len(batch.runs))

    def keeper(self, batch: batching.Batch) -> Keeper:
        """Of its checkpoints. Where several processes compute together, the others learn here which batch comes next."""
        if not distributed.connected():
            return Keeper(self.store, batch.id)
        lockstep.announce(batch)
        return lockstep.Sharer(self.store, batch.id)

    def split(self, batch: batching.Batch, why: str) -> list[batching.Batch]:
        """The halves of a batch, in its place in the plan before they run, and why, in a line."""
        parts = batching.halves(batch)
        words = f"{why} with {batch.width} runs side by side; {parts[0].width} from here on, beginning with round 0"
        self.progress.say(f"cfljax: {name_of(batch)}: {words}")
        with self.store.claim("plan", wait=True):
            table = self.store.read_plan() or {"batches": []}
            whole = [run.id for run in batch.runs]
            rest = [there for there in table["batches"] if there["runs"] != whole]
            table["batches"] = rest + [entry(part) for part in parts]
            self.store.write_plan(table)
        return parts

    def keep(self, name: str, record: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Commit a unit and tell how it ended."""
        if not self.store.has(record["id"]):
            self.store.write(record["id"], record, arrays)
        self.progress.finish(record["status"])
        if record["status"] == "failed":
            self.progress.say(f"cfljax: {name} failed: {record['error']}")
        elif record["status"] == "diverged":
            self.progress.say(f"cfljax: {record['label']} (seed {record['seed']}) diverged in round {record['diverged_at']}")


def rounds_of(batch: batching.Batch) -> int:
    """Of all its runs together."""
    return len(batch.runs) * batch.first.train.rounds


def name_of(batch: batching.Batch) -> str:
    """What people call the batch."""
    seeds = sorted({run.seed for run in batch.runs})
    return f"{batch.first.label} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"
