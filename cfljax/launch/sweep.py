"""Carry out a sweep, from its runs to a full results folder: runs that the folder has are kept, the
others are computed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cfljax.config import Run, Spec
from cfljax.devices import distributed
from cfljax.devices.machine import Machine, Speed, describe_machine, list_messages
from cfljax.devices.mesh import AUTO, Shape
from cfljax.errors import SpecError, SpecWarning
from cfljax.experiment import batching
from cfljax.launch.batch import KEEP_CHOICES, OnEvaluation, SplitBatch, Unit, run_batch
from cfljax.launch.checkpoints import Checkpoints, log_batch
from cfljax.launch.continuing import prepare_states
from cfljax.launch.plan_file import (
    OTHER_SWEEP_ERROR,
    PreparedBatches,
    fingerprint,
    list_differences,
    make_batch,
    make_plan,
    to_entry,
)
from cfljax.launch.progress import Progress, do_nothing
from cfljax.launch.time_left import Work
from cfljax.registry.options import Table
from cfljax.software import software
from cfljax.store import Store
from cfljax.store.quantities import score_of


class SweepOptions(NamedTuple):
    """How a sweep is carried out; none of it is part of a result."""

    # What a unit keeps: "models" (and labels), "labels" or "none"
    keep: str = "labels"
    quiet: bool = False
    retry_failed: bool = False
    # The options of the launcher, checked
    launcher: object = None
    # (i, n): do the i-th of n equal parts of the runs and leave the rest to others
    part: tuple[int, int] | None = None
    # The devices that runs are dealt to (`--mesh`)
    mesh: Shape | None = None
    # Is called in the process that was started whenever progress was made
    changed: Callable[[Progress], None] = do_nothing
    # Is called at each evaluation of each run; None: runs that a callback has stopped go on
    callback: OnEvaluation | None = None


class Outcome(NamedTuple):
    """How many runs of the spec ended in which way, including runs of earlier starts."""

    done: int
    diverged: int
    failed: int
    # Runs of this start
    computed: int


def carry_out(
    spec: Spec,
    store: Store,
    options: SweepOptions,
    limit: int | Callable[[list[Run]], int] | None = None,
    shown: Progress | None = None,
) -> Outcome:
    """Compute the runs that the folder lacks, in batches of at most `limit` runs that share a
    program; None: as many as the device's memory holds. Batches that another process is working on
    are left to it, and taken over if it dies. `shown`: the progress of a search, whose last phase
    this is."""
    todo, machine = prepare_batches(spec, store, options, limit)
    with start_progress(spec, store, todo, options, shown=shown) as progress:
        for message in (
            *spec.warnings,
            *([*list_messages(machine), *list_differences(store, machine)] if todo else []),
        ):
            progress.say(f"cfljax: {message}")
        work(todo, Worker(store, options, progress, machine))
    return count_outcome(spec, store, todo)


def prepare_batches(
    spec: Spec,
    store: Store,
    options: SweepOptions,
    limit: int | Callable[[list[Run]], int] | None = None,
    threads: int | None = None,
) -> PreparedBatches:
    """Write plan.json, and return the batches that are still to do, with the machine that computes
    them. Batches of failed runs are among them if `options` says that these run again. `threads`:
    the threads of each process, if these are not all cores."""
    with store.claim("plan", wait=True):
        batches, machine = make_plan(spec, store, describe_machine(options.mesh), limit, threads)
        done = store.done(("failed",) if options.retry_failed else (), verify=True)
        # What follows is for the process that has started the workers
        leads = "CFLJAX_WORKER" not in os.environ
        if leads:
            done -= _check_kept(spec, store, options)
        todo = [
            batch
            for batch in _select_part(spec, batches, options.part)
            if any(run.id not in done for run in batch.runs)
        ]
        ids = [run.id for batch in todo for run in batch.runs]
        if leads and todo:
            prepare_states(todo, spec.units(), store)
            if options.callback is None:
                store.forget_stopped(ids)
        # From here on failed runs are like any other: each is computed once, by the first process
        # that claims it
        if options.retry_failed:
            store.forget_failed(ids)
    return todo, machine


def _check_kept(spec: Spec, store: Store, options: SweepOptions) -> set[str]:
    """Return the runs that go on because a callback has stopped them and there is none now. Warn in
    one line if an earlier start kept less of the other runs than this one keeps: they are not
    computed again."""
    records = {
        run.id: record
        for run in spec.units()
        if (record := store.record(run.id)) is not None and record["status"] != "failed"
    }
    stopped: set[str] = set()
    if options.callback is None:
        stopped = {name for name, record in records.items() if "stopped_at" in record}
    kept = [
        ["state", *record["arrays"].get("names", ["models", "labels"])]
        if "state" in record
        else record["arrays"].get("names", ["models", "labels"])
        for name, record in records.items()
        if name not in stopped
    ]
    # What each choice keeps is also kept by the choices before it
    order = [name for name in KEEP_CHOICES if name != "none"]
    wanted = order[order.index(options.keep) :] if options.keep in order else []
    for name in wanted:
        if count := sum(name not in names for names in kept):
            runs, are = ("run", "is") if count == 1 else ("runs", "are")
            why = (
                f"--keep {options.keep}: {count} {runs} of an earlier start in {store.folder} kept "
                f"no {name}"
            )
            line = f"{why}, and {are} not computed again; take another folder to have them"
            warnings.warn(line, SpecWarning, stacklevel=3)
            break
    return stopped


def _select_part(
    spec: Spec, batches: list[batching.Batch], part: tuple[int, int] | None
) -> list[batching.Batch]:
    """Return the batches whose first run is in the i-th of n equal parts of the spec, so that
    neighbours share programs."""
    if part is None:
        return batches
    index = {run.id: at for at, run in enumerate(spec.units())}
    return [batch for batch in batches if index[batch.first.id] * part[1] // len(index) == part[0]]


@contextlib.contextmanager
def start_progress(
    spec: Spec,
    store: Store,
    todo: list[batching.Batch],
    options: SweepOptions,
    lines: int = 1,
    shown: Progress | None = None,
) -> Iterator[Progress]:
    """Show the progress of these batches; `shown`: as the last phase of this progress."""
    rounds: Counter[str] = Counter()
    for batch in todo:
        rounds[batch.first.label] += count_rounds(batch)
    ids = {run.id for batch in todo for run in batch.runs}
    index, parts = options.part or (0, 1)
    units = spec.units()
    own = [run for at, run in enumerate(units) if at * parts // len(units) == index]
    before = sum(run.id not in ids and store.has(run.id) for run in own)
    work = Work(rounds, len(ids), before, len(todo))
    if shown is not None:
        shown.enter(work._replace(name="best settings"), lines=lines)
        yield shown
        return
    with Progress(work, quiet=options.quiet, lines=lines) as progress:
        progress.changed = options.changed
        yield progress


def work(todo: list[batching.Batch], worker: Worker) -> None:
    """Return when all these batches are done, by this worker or by other processes that share the
    folder."""
    while todo:
        # A batch that another process has claimed is tried again: its claim ends with the process
        others = list(itertools.filterfalse(worker.take, todo))
        todo = list(itertools.filterfalse(worker.is_finished, others))
        if todo:
            time.sleep(0.5)


def count_outcome(spec: Spec, store: Store, todo: list[batching.Batch]) -> Outcome:
    """Count how the runs of the spec have ended. `todo`: the batches of this start."""
    records = store.records()
    statuses = [records[run.id]["status"] for run in spec.units() if run.id in records]
    computed = sum(len(batch.runs) for batch in todo)
    return Outcome(
        statuses.count("done"), statuses.count("diverged"), statuses.count("failed"), computed
    )


@contextlib.contextmanager
def run_together(spec: Spec, shape: Shape | None) -> Iterator[None]:
    """End all processes that compute together (`--distributed`) at an exception in this context.
    `shape`: the requested mesh."""
    if not distributed.is_connected():
        yield
        return
    try:
        agree_on_start(spec, describe_machine(shape))
        yield
        if distributed.leads():
            # The other processes wait for the next batch: there is none
            distributed.agree(None)
    except BaseException as error:
        distributed.fail(error)
        raise
    distributed.leave()


def agree_on_start(spec: Spec, machine: Machine) -> None:
    """Raise a SpecError in all processes if one of them reads another spec or other data, or is
    another program or machine."""
    facts = {
        "version": software(),
        "--mesh": machine.mesh,
        "devices": [machine.backend, machine.devices],
        "the spec": fingerprint(spec),
    }
    said = [json.loads(word) for word in distributed.gather(json.dumps(facts))]
    for number, other in enumerate(said):
        for name, value in other.items():
            if value != said[0][name]:
                why = (
                    f"{name} is {value} in process {number} and {said[0][name]} in process 0; "
                    f"give all the same. Or {OTHER_SWEEP_ERROR}"
                )
                raise SpecError(f"--distributed: {why}")
    machine.shape()


def follow_leader(spec: Spec) -> int:
    """Compute the batches that process 0 announces, until there are no more; return the exit
    code."""
    by_id = {run.id: run for run in spec.units()}
    while (announced := distributed.agree(None)) is not None:
        runs, width, mesh, speed = announced
        batch = make_batch([by_id[name] for name in runs], width)
        assert batch is not None, "the same runs share a program in all processes"
        with contextlib.suppress(SplitBatch):
            run_batch(batch, describe_machine(Shape(*mesh), Speed(*speed)), "none")
    return 0


class Worker(NamedTuple):
    """Computes batches and keeps their units."""

    store: Store
    options: SweepOptions
    progress: Progress
    machine: Machine

    def is_finished(self, batch: batching.Batch) -> bool:
        """Return whether the folder has the units of all its runs."""
        return all(self.store.has(run.id) for run in batch.runs)

    def take(self, batch: batching.Batch) -> bool:
        """Compute the batch, unless it is done. Return False if another process is computing it."""
        with self.store.claim(batch.id) as claimed:
            if not claimed:
                return False
            if self.is_finished(batch):
                self.progress.pass_over(count_rounds(batch), batch.first.label)
            else:
                self.compute(batch)
        return True

    def compute(self, batch: batching.Batch) -> None:
        """Compute and store the batch's units, or its halves' if it is too large for the device or
        a run raises an error."""
        shown = 0
        self.progress.start(format_name(batch), count_rounds(batch), batch.first.label)

        def report(done: int, accuracy: float | None) -> None:
            nonlocal shown
            self.progress.update((done - shown) * len(batch.runs), accuracy)
            shown = done

        checkpoints = Checkpoints(self.store, batch.id)
        if distributed.is_connected():
            distributed.agree(
                (
                    [run.id for run in batch.runs],
                    batch.width,
                    self.machine.mesh or AUTO,
                    self.machine.speed,
                )
            )
        try:
            units = run_batch(
                batch,
                self.machine,
                self.options.keep,
                report,
                checkpoints,
                callback=self.options.callback,
            )
        except SplitBatch as why:
            self.progress.update(-shown * len(batch.runs))
            self.store.remove_checkpoint(batch.id)
            for part in self.split(batch, str(why)):
                self.compute(part)
            return
        self.commit(batch, units)
        self.progress.update(count_rounds(batch) - shown * len(batch.runs))

    def split(self, batch: batching.Batch, why: str) -> list[batching.Batch]:
        """Replace a batch by its halves in the plan file; `why` is shown in a line."""
        parts = batching.split_batch(batch)
        words = (
            f"{why} with {batch.width} runs side by side; {parts[0].width} from here on, "
            "beginning with round 0"
        )
        self.progress.say(f"cfljax: {format_name(batch)}: {words}")
        with self.store.claim("plan", wait=True):
            table = self.store.read_plan() or {"batches": []}
            whole = [run.id for run in batch.runs]
            others = [each for each in table["batches"] if each["runs"] != whole]
            table["batches"] = others + [to_entry(part) for part in parts]
            self.store.write_plan(table)
        return parts

    def commit(self, batch: batching.Batch, units: list[Unit]) -> None:
        """Write the batch's units to the folder, show how its runs ended, and remove its
        checkpoint."""
        for record, arrays in units:
            if not self.store.has(record["id"]):
                self.store.write(record["id"], record, arrays)
            self.progress.finish(record["status"], format_result(record))
            if record["status"] == "failed":
                self.progress.say(f"cfljax: {format_name(batch)} failed: {record['error']}")
            elif record["status"] == "diverged":
                self.progress.say(
                    f"cfljax: {record['label']} (seed {record['seed']}) diverged in round "
                    f"{record['diverged_at']}"
                )
        self.store.remove_checkpoint(batch.id)
        log_batch(self.store, "done", batch.id)


def count_rounds(batch: batching.Batch) -> int:
    """Count the rounds of all its runs together."""
    return len(batch.runs) * batch.first.train.rounds


def format_name(batch: batching.Batch) -> str:
    """Name the batch by the label of its method, and its seeds."""
    seeds = sorted({run.seed for run in batch.runs})
    return f"{batch.first.label} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"


def format_result(record: Table) -> str:
    """Format the result of a run in a line; "" for a run that did not come to its end."""
    if record["status"] != "done":
        return ""
    summary = record["summary"]
    timings = record["timings"]
    trained, prepared = (
        timings[a] + timings[b] for a, b in (("train", "eval"), ("compile", "setup"))
    )
    score = score_of(record)
    accuracy = f"{score} {summary[f'{score}_last']:.3f} after {summary['rounds']} rounds"
    of = f"{record['label']} (seed {record['seed']})"
    return f"{of}: {accuracy} in {trained:.3g} s, and {prepared:.3g} s of compiling and setting up"
