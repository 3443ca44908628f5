"""A sweep on a Slurm cluster by submitit: an array with a job per batch. Jobs share the results
folder; this process reads logs."""

from __future__ import annotations

import dataclasses
import secrets
import subprocess
import sys
import time

from cfljax.config import Spec, read_spec
from cfljax.devices.cores import use_cores, use_threads
from cfljax.errors import CfljaxError, SpecError
from cfljax.experiment.batching import Batch
from cfljax.files import use_compilation_cache
from cfljax.launch.batch import make_failed
from cfljax.launch.options import SlurmOptions
from cfljax.launch.plan_file import OTHER_SWEEP_ERROR, choose_threads, fingerprint, list_differences
from cfljax.launch.sweep import (
    Outcome,
    SweepOptions,
    Worker,
    count_outcome,
    count_rounds,
    format_name,
    prepare_batches,
    start_progress,
    work,
)
from cfljax.launch.workers import RelayedProgress, WorkerError, split_event
from cfljax.registry import Entry
from cfljax.registry.options import Table, Value
from cfljax.store import Store

# Progress lines, one per running job
MAX_LINES = 8
# Jobs of an array; Slurm's own default is one more
MAX_ARRAY = 1000
# Seconds between two readings of the jobs' logs
POLL_SECONDS = 1.0
# How often a job may continue after its time is over: without end
MAX_CONTINUATIONS = 10**9


@dataclasses.dataclass
class Job:
    """What a job does: compute the batches of some runs, or without runs make the plan of the
    sweep that has the fingerprint `mark`. When Slurm is about to end a job, submitit takes its
    `checkpoint` and puts it back into the queue."""

    spec: Table
    sets: tuple[str, ...]
    mark: str
    folder: str
    keep: str
    cache: bool
    threads: int
    # Stands before each event that the job prints
    word: str
    runs: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, int] | None:
        """Do it, and print how it goes as events. Return the error that ended it, and its
        exit code."""
        try:
            self.compute(RelayedProgress(self.word))
        except CfljaxError as error:
            return str(error), error.exit_code
        return None

    def checkpoint(self) -> Value:
        """Return what to do after the interruption: the same, from the batch's own checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def compute(self, progress: RelayedProgress) -> None:
        """Do it."""
        progress.tell("begin")
        store = Store(self.folder)
        options = SweepOptions(self.keep, quiet=True)
        use_cores((store.read_plan() or {}).get("devices", 1))
        use_threads(self.threads)
        if self.cache:
            use_compilation_cache()
        spec = read_spec(self.spec, self.sets)
        if fingerprint(spec) != self.mark:
            raise SpecError(OTHER_SWEEP_ERROR)
        todo, machine = prepare_batches(spec, store, options, threads=self.threads)
        for message in list_differences(store, machine) if self.runs else ():
            progress.say(f"cfljax: {message}")
        # Several batches if the one that was planned has been split
        mine = [batch for batch in todo if any(run.id in self.runs for run in batch.runs)]
        work(mine, Worker(store, options, progress, machine))


def carry_out_by_slurm(
    spec: Spec, store: Store, options: SweepOptions, workers: int | None, arguments: list[str]
) -> Outcome:
    """Carry out the sweep on a Slurm cluster. `workers`: jobs at a time (default: as many as Slurm
    allows)."""
    chosen = options.launcher if isinstance(options.launcher, SlurmOptions) else SlurmOptions()
    plan = store.read_plan() or {"batches": []}
    threads = choose_threads(store, chosen.cpus_per_task)
    executor = _make_executor(store, chosen, workers, threads)
    cache = "--no-cache" not in arguments
    folder = str(store.folder.resolve())
    mark = fingerprint(spec)
    word = secrets.token_hex(8)
    job = Job(spec.table, spec.sets, mark, folder, options.keep, cache, threads, word)
    planned = {name for batch in plan["batches"] for name in batch["runs"]}
    if chosen.gpus_per_task and not planned.issuperset(run.id for run in spec.units()):
        print(
            "cfljax: waiting for a job that makes the plan: the batch width depends on its GPU",
            file=sys.stderr,
        )
        handle = _submit(executor, [job])[0]
        try:
            if not _has_returned(handle):
                raise WorkerError(
                    f"--launcher slurm: the job that makes the plan was killed ({handle.state})",
                    1,
                )
        finally:
            _cancel(executor, [handle])
    todo, machine = prepare_batches(spec, store, options, 1, threads)
    lines = max(1, min(MAX_LINES, workers or MAX_LINES, len(todo)))
    with start_progress(spec, store, todo, options, lines) as progress:
        for message in spec.warnings:
            progress.say(f"cfljax: {message}")
        worker = Worker(store, options, progress, machine)
        _Watch(executor, worker, chosen.retries, workers is not None).work(job, todo)
    return count_outcome(spec, store, todo)


SLURM = Entry(SlurmOptions, carry_out_by_slurm)


def _make_executor(store: Store, chosen: SlurmOptions, workers: int | None, threads: int) -> Value:
    """Make submitit's executor. Its files are in the results folder, which all machines must reach,
    and in a new folder there, as they are pickles: nobody can have prepared them."""
    try:
        import submitit
    except ImportError:
        raise SpecError(
            '--launcher slurm: submitit is not installed; pip install ".[slurm]" in the checkout'
        ) from None
    flags = chosen.flags()
    cluster = flags.pop("cluster")
    minutes = int(flags.pop("time"))
    folder = store.folder / "slurm" / secrets.token_hex(8)
    try:
        executor = submitit.AutoExecutor(
            folder, cluster=cluster, slurm_max_num_timeout=MAX_CONTINUATIONS
        )
    except (RuntimeError, ValueError):
        why = (
            "needs srun; start the sweep on a machine of the cluster, or try it with --slurm "
            "cluster=local"
        )
        raise SpecError(f"--launcher slurm: --slurm cluster={cluster}: {why}") from None
    needs: Table = {
        "timeout_min": minutes,
        "cpus_per_task": threads,
        "gpus_per_node": int(chosen.gpus_per_task) or None,
    }
    needs |= {
        "slurm_array_parallelism": workers or MAX_ARRAY,
        "slurm_additional_parameters": flags or None,
    }
    executor.update_parameters(name="cfljax", **needs)
    return executor


@dataclasses.dataclass
class _Submitted:
    """A submitted job; `handle` is submitit's. Of its log `read` bytes have been read: this start
    has done so many rounds."""

    job: Job
    batch: Batch
    handle: Value
    line: int
    read: int = 0
    done: int = 0
    starts: int = 0
    killed: int = 0

    def read_log(self) -> list[list[Value]]:
        """Return the events that the job has printed since the last time; other text is submitit's,
        or a plug-in's."""
        path = self.handle.paths.stdout
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self.read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self.read += len(whole) + len(newline)
        lines = whole.decode(errors="replace").split("\n")
        events = (split_event(line, self.job.word)[1] for line in lines)
        return [event for event in events if event is not None]


class _Watch:
    """Submits jobs, shows their progress, and submits again what was killed."""

    def __init__(self, executor: Value, worker: Worker, retries: int, limited: bool = False):
        """`limited`: an array limits its jobs at a time, so that the next one must wait for it."""
        self.executor = executor
        self.worker = worker
        self.progress = worker.progress
        self.retries = retries
        self.limited = limited
        self.jobs: list[_Submitted] = []

    def work(self, job: Job, todo: list[Batch]) -> None:
        """Return when all batches are done. However it ends, no job goes on."""
        try:
            for at in range(0, len(todo), MAX_ARRAY):
                self.submit(job, todo[at : at + MAX_ARRAY])
                if self.limited:
                    self.wait()
            self.wait()
        finally:
            _cancel(self.executor, [each.handle for each in self.jobs])

    def submit(self, job: Job, batches: list[Batch]) -> None:
        """Submit an array with a job for each of these batches."""
        jobs = [
            dataclasses.replace(job, runs=tuple(run.id for run in batch.runs)) for batch in batches
        ]
        lines = [number % self.progress.lines for number in range(len(jobs))]
        self.jobs += map(_Submitted, jobs, batches, _submit(self.executor, jobs), lines)

    def wait(self) -> None:
        """Return when all submitted jobs are done."""
        while self.jobs:
            self.jobs = [each for each in self.jobs if not self.follow(each)]
            time.sleep(POLL_SECONDS if self.jobs else 0)

    def follow(self, job: _Submitted) -> bool:
        """Show what the job has done; return whether its batch is done. It may wait, compute, or
        its files be on the way."""
        # Asked before the log is read: whatever a job that is over has printed is then in its log
        over = job.handle.done()
        for what, *values in job.read_log():
            if what == "begin" and job.starts:
                self.progress.say(
                    f"cfljax: {format_name(job.batch)}: its job was interrupted; it goes on "
                    "from its last checkpoint"
                )
                self.update(job, -job.done)
            elif what == "start":
                self.progress.start(values[0], values[1], values[2], job.line)
            elif what == "update":
                self.update(job, *values)
            elif what != "begin":
                getattr(self.progress, what)(*values)
            job.starts += what == "begin"
        if over and (done := self.worker.is_finished(job.batch)):
            self.update(job, count_rounds(job.batch) - job.done)
            return done
        if over and not _has_returned(job.handle):
            self.start_again(job)
        return False

    def update(self, job: _Submitted, rounds: int, accuracy: float | None = None) -> None:
        """Count rounds of the job."""
        job.done += rounds
        self.progress.update(rounds, accuracy, job.line)

    def start_again(self, job: _Submitted) -> None:
        """Submit a job again that was killed. If that was too often, its runs count as failed."""
        job.killed += 1
        if job.killed <= self.retries:
            job.handle = _submit(self.executor, [job.job])[0]
            job.read = 0
        else:
            why = (
                f"its job was killed {job.killed} time{'s' if job.killed > 1 else ''} "
                f"({job.handle.state})"
            )
            self.worker.commit(job.batch, [make_failed(run, why) for run in job.batch.runs])


def _submit(executor: Value, jobs: list[Job]) -> list[Value]:
    """Submit an array of jobs, and return submitit's handles; a SpecError has sbatch's words."""
    try:
        handles: list[Value] = executor.submit_array(jobs)
    except RuntimeError as error:
        raise SpecError(
            f"--launcher slurm: sbatch: {' '.join(str(error).split())[-300:]}"
        ) from None
    return handles


def _has_returned(handle: Value) -> bool:
    """Wait for the end of a job, and return whether it came by itself. Raise the error that the job
    met."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        error = handle.result()
    except FailedJobError as failed:
        lines = [
            line
            for line in str(failed).splitlines()
            if line.strip("- ") and not line.startswith("You can check")
        ]
        raise WorkerError(
            f"--launcher slurm: a job could not run: {lines[-1].strip()[-300:]}", 1
        ) from None
    except UncompletedJobError:
        return False
    if error is not None:
        raise WorkerError(*error)
    return True


def _cancel(executor: Value, handles: list[Value]) -> None:
    """Cancel these jobs, an array in one call, as a process that received a signal has little
    time."""
    if executor.cluster != "slurm":
        for handle in handles:
            handle.cancel(check=False)
    elif arrays := sorted({handle.job_id.partition("_")[0] for handle in handles}):
        subprocess.run(["scancel", *arrays], capture_output=True, check=False)
