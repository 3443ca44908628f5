"""A sweep on a Ray cluster: a task per batch, with retries. Results come back to this process,
which alone writes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from cfljax.config import Run, Spec
from cfljax.devices.cores import list_cores
from cfljax.errors import SpecError
from cfljax.experiment.batching import Batch
from cfljax.launch import ray_task
from cfljax.launch.batch import make_failed
from cfljax.launch.options import RayOptions
from cfljax.launch.plan_file import choose_threads
from cfljax.launch.sweep import (
    Outcome,
    SweepOptions,
    Worker,
    count_outcome,
    count_rounds,
    format_name,
    prepare_batches,
    start_progress,
)
from cfljax.launch.workers import WorkerError
from cfljax.registry import Entry
from cfljax.registry.options import Value
from cfljax.store import Claim, Store

PASSED_VARIABLES = ("CFLJAX_DATA", "CFLJAX_DEBUG", "CFLJAX_CHECKPOINT", "JAX_PLATFORMS")
"""Variables of this process that tasks on other machines get, too."""
# Progress lines, one per running batch
MAX_LINES = 8


def carry_out_by_ray(
    spec: Spec, store: Store, options: SweepOptions, workers: int | None, arguments: list[str]
) -> Outcome:
    """Carry out the sweep on a Ray cluster. `workers`: tasks at a time of a Ray started for it
    (default: what cores allow)."""
    chosen = options.launcher if isinstance(options.launcher, RayOptions) else RayOptions()
    threads = choose_threads(store, chosen.cpus_per_task)
    devices = (store.read_plan() or {}).get("devices", 1)
    with _connect(chosen, workers, threads) as cluster:
        order = _make_order(spec, options, arguments, threads, devices)

        def limit(runs: list[Run]) -> int:
            if not chosen.gpus_per_task:
                return 1
            return int(
                cluster.get(
                    cluster.limit.remote(
                        {**order, "runs": [run.id for run in runs], "width": len(runs)}
                    )
                )
            )

        todo, machine = prepare_batches(spec, store, options, limit, threads)
        order |= {"speed": list(machine.speed), "mesh": machine.mesh and list(machine.mesh)}
        lines = max(1, min(MAX_LINES, len(todo), cluster.count_slots(1)))
        with start_progress(spec, store, todo, options, lines) as progress:
            for message in spec.warnings:
                progress.say(f"cfljax: {message}")
            _Writer(cluster, Worker(store, options, progress, machine), order).compute(todo)
    return count_outcome(spec, store, todo)


def _make_order(
    spec: Spec, options: SweepOptions, arguments: list[str], threads: int, devices: int
) -> ray_task.Order:
    """Make the order to the tasks, without a batch. Files have absolute names: tasks read them on
    their own machines."""
    table = dict(spec.table)
    beside = Path(spec.file).parent
    if "plugins" in table:
        table["plugins"] = [
            str((beside / name).resolve()) if str(name).endswith(".py") else name
            for name in table["plugins"]
        ]
    flags = [
        after for flag, after in zip(arguments, arguments[1:], strict=False) if flag == "--plugin"
    ]
    return {
        "table": table,
        "sets": list(spec.sets),
        "plugins": flags,
        "keep": options.keep,
        "cache": "--no-cache" not in arguments,
        "folder": str(Path.cwd()),
        "threads": threads,
        "devices": devices,
    }


RAY = Entry(RayOptions, carry_out_by_ray)


class _Cluster:
    """A connection to Ray, with the functions and the mailbox that run on the cluster."""

    def __init__(self, ray: Value, chosen: RayOptions, threads: int):
        self.ray = ray
        self.get = ray.get
        self.chosen = chosen
        self.threads = threads
        needs = {
            "num_cpus": threads,
            "num_gpus": chosen.gpus_per_task,
            "max_retries": chosen.retries,
        }
        self.compute = ray.remote(**needs)(ray_task.compute)
        self.limit = ray.remote(**needs)(ray_task.limit)
        self.mailbox = ray.remote(num_cpus=0, max_restarts=-1)(ray_task.Mailbox).remote()

    def count_slots(self, ahead: int) -> int:
        """Return the number of tasks to hand over: those at a time, times `ahead`, so that no
        worker waits for this process."""
        resources = self.ray.cluster_resources()
        slots = resources.get("CPU", 1) // self.threads
        if self.chosen.gpus_per_task:
            slots = min(slots, resources.get("GPU", 0) // self.chosen.gpus_per_task)
        return max(1, int(slots)) * ahead


@contextlib.contextmanager
def _connect(chosen: RayOptions, workers: int | None, threads: int) -> Iterator[_Cluster]:
    """Connect to the cluster for this context; raise a SpecError if the cluster cannot run the
    tasks."""
    # Ray would report the use of the cluster to its makers
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SpecError(
            '--launcher ray: Ray is not installed; pip install ".[ray]" in the checkout'
        ) from None
    address = chosen.address or os.environ.get("RAY_ADDRESS") or "local"
    resources: dict[str, Value] = {}
    if address == "local":
        resources = {
            "num_cpus": (workers or max(1, len(list_cores()) // threads)) * threads,
            "include_dashboard": False,
        }
    else:
        _check_reachable(address)
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    # `ray.init` replaces the handler of this signal, which ends the sweep in an orderly way
    before = signal.getsignal(signal.SIGTERM)
    try:
        runtime = {"env_vars": passed}
        ray.init(
            address=address,
            runtime_env=runtime,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **resources,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SpecError(
            f"--address {address}: cannot connect ({' '.join(str(error).split())[:200]})"
        ) from None
    try:
        signal.signal(signal.SIGTERM, before)
        _check_resources(ray, chosen, threads)
        yield _Cluster(ray, chosen, threads)
    finally:
        ray.shutdown()


def _check_resources(ray: Value, chosen: RayOptions, threads: int) -> None:
    """Reject tasks that no machine of the cluster has enough CPUs or GPUs for: they would wait for
    ever."""
    cpus = max(
        (node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0
    )
    if cpus < threads:
        raise SpecError(
            f"--launcher ray: a batch takes {threads} CPUs, and no machine of the "
            f"cluster has more than {cpus:g}"
        )
    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus < chosen.gpus_per_task:
        raise SpecError(f"--gpus-per-task {chosen.gpus_per_task:g}: the cluster has {gpus:g} GPUs")


def _check_reachable(address: str) -> None:
    """Raise a SpecError if nobody answers at `host:port`: Ray itself would try for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not port.isdigit():
        # An address without a port, such as "auto", is Ray's to resolve
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise SpecError(
            f"--address {address}: no server answers there ({error.strerror or error})"
        ) from None


@dataclasses.dataclass
class _Task:
    """A batch that has been handed over."""

    batch: Batch
    claim: Claim
    # Its progress line; −1: none
    line: int
    # Rounds
    done: int = 0
    # How many workers have begun with it
    starts: int = 0


class _Writer:
    """The one process that reads and writes the results folder."""

    def __init__(self, cluster: _Cluster, worker: Worker, order: ray_task.Order):
        self.cluster = cluster
        self.worker = worker
        self.order = order
        self.store = worker.store
        self.progress = worker.progress
        # Running tasks by Ray's handle
        self.tasks: dict[Value, _Task] = {}
        self.lines = list(range(self.progress.lines))

    def compute(self, todo: list[Batch]) -> None:
        """Hand these batches over to tasks. Returns when all are done, by tasks or by other
        processes that share the folder."""
        waiting = collections.deque(todo)
        elsewhere: list[Batch] = []
        try:
            while waiting or elsewhere or self.tasks:
                while waiting and len(self.tasks) < self.cluster.count_slots(2):
                    batch = waiting.popleft()
                    if not self.submit(batch):
                        elsewhere.append(batch)
                if self.tasks:
                    ready, _ = self.cluster.ray.wait(list(self.tasks), timeout=0.5)
                    self.read_mailbox()
                    for reference in ready:
                        waiting.extendleft(reversed(self.finish_task(reference)))
                else:
                    time.sleep(0.5)
                    waiting.extend(
                        batch for batch in elsewhere if not self.worker.is_finished(batch)
                    )
                    elsewhere = []
        finally:
            for task in self.tasks.values():
                task.claim.release()

    def submit(self, batch: Batch) -> bool:
        """Hand a batch over; False when another process is at it."""
        claim = self.store.claim(batch.id)
        if not claim:
            return False
        if self.worker.is_finished(batch):
            self.progress.pass_over(count_rounds(batch), batch.first.label)
            claim.release()
            return True
        order = {**self.order, "runs": [run.id for run in batch.runs], "width": batch.width}
        reference = self.cluster.compute.remote(
            order, self.cluster.mailbox, self.store.load_checkpoint(batch.id)
        )
        self.tasks[reference] = _Task(batch, claim, -1)
        return True

    def read_mailbox(self) -> None:
        """Show and keep what tasks have put into the mailbox since the last time."""
        messages, saved = self.cluster.get(self.cluster.mailbox.take_news.remote())
        by_id = {task.batch.id: task for task in self.tasks.values()}
        for what, name, *values in messages:
            if name in by_id and what == "start":
                self.show_start(by_id[name])
            elif name in by_id and what == "at":
                self.show_progress(by_id[name], *values)
            elif what == "log":
                self.store.log(*values)
            elif what == "aside":
                self.store.set_aside_checkpoint(name, *values)
            elif what == "warn":
                self.progress.say(f"cfljax: {values[0]}")
        # After the messages: one of them may set an older checkpoint of the batch aside
        for name, checkpoint in saved.items():
            if name in by_id:
                self.store.save_checkpoint(name, *checkpoint)

    def show_start(self, task: _Task) -> None:
        """Show that a worker has begun with the batch; it may be another one than before."""
        if task.starts:
            self.progress.say(
                f"cfljax: {format_name(task.batch)}: its worker died; another one runs it again"
            )
            self.show_progress(task, 0, None)
        elif self.lines:
            task.line = self.lines.pop(0)
        task.starts += 1
        if task.line >= 0:
            self.progress.start(
                format_name(task.batch),
                count_rounds(task.batch),
                task.batch.first.label,
                task.line,
            )

    def show_progress(self, task: _Task, done: int, accuracy: float | None) -> None:
        """Show that `done` rounds of the batch are done."""
        change = (done - task.done) * len(task.batch.runs)
        task.done = done
        if task.line >= 0:
            self.progress.update(change, accuracy, task.line)
        else:
            self.progress.pass_over(change, task.batch.first.label)

    def finish_task(self, reference: Value) -> list[Batch]:
        """Keep the units that a task has returned; return the batches in its place: none, or its
        batch's halves."""
        task = self.tasks[reference]
        parts = []
        answer = self.read_answer(reference, task)
        if answer[0] == "error":
            raise WorkerError(*answer[1:])
        if answer[0] == "halves":
            self.show_progress(task, 0, None)
            self.store.remove_checkpoint(task.batch.id)
            parts = self.worker.split(task.batch, answer[1])
        else:
            self.worker.commit(task.batch, answer[1])
            self.show_progress(task, task.batch.first.train.rounds, None)
        self.cluster.mailbox.forget.remote(task.batch.id)
        del self.tasks[reference]
        task.claim.release()
        if task.line >= 0:
            self.lines.append(task.line)
        return parts

    def read_answer(self, reference: Value, task: _Task) -> ray_task.Answer:
        """Return what the task returned; failed units if its workers died again and again."""
        from ray import exceptions

        try:
            answer: ray_task.Answer = self.cluster.get(reference)
            return answer
        except exceptions.RayTaskError as error:
            why = " ".join(str(error.cause or error).split())
            hint = (
                "; install cfljax on the cluster's machines"
                if "cfljax" in why and "module" in why.lower()
                else ""
            )
            return "error", f"--launcher ray: a task could not run: {why[-300:]}{hint}", 1
        except exceptions.RayError as error:
            times = self.cluster.chosen.retries + 1
            why = (
                f"its worker died {times} time{'s' if times > 1 else ''} "
                f"({type(error).__name__}: {str(error).splitlines()[0]})"
            )
            return "units", [make_failed(run, why) for run in task.batch.runs]
