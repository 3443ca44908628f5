"""A sweep by several processes of this machine: on a CPU small programs do not use more than a core, and two runs in two
processes take the time of one. They share the results folder as any processes may; this one only watches."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from typing import Any

from cfljax.config import Spec
from cfljax.devices.cores import cores, keep_to, use_cores
from cfljax.errors import CfljaxError, SpecError, StoreError
from cfljax.experiment import assemble
from cfljax.launch.plan_file import OTHERS, mark, unlike
from cfljax.launch.progress import Progress
from cfljax.launch.sweep import Options, Outcome, carry_out, lay_down, outcome, rounds_of, work
from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.store import Store

WORKER = "CFLJAX_WORKER"
"""Set in the environment of workers to the mark of their sweep: they compute its runs or none, and it is not for them to tell the
user how to go on."""


class WorkerError(CfljaxError):
    """What ended a worker, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.exit_code = code


class Told(Progress):
    """A worker's progress: lines of JSON on standard output, for the process that watches."""

    def _tell(self, what: str, *values: Any) -> None:
        try:
            print(json.dumps([what, *values]), flush=True)
        except BrokenPipeError:  # the watcher was killed: not a fault of the run that is told about, which others will do
            os._exit(1)

    def start(self, name: str, rounds: int, line: int = 0) -> None:  # noqa: ARG002
        """As in Progress."""
        self._tell("start", name, rounds)

    def update(self, rounds: int, accuracy: float | None = None, line: int = 0) -> None:  # noqa: ARG002
        """As in Progress."""
        self._tell("update", rounds, accuracy)

    def pass_over(self, rounds: int, accuracy: float | None = None, line: int = 0) -> None:
        """What others did is theirs to tell."""

    def finish(self, status: str) -> None:
        """As in Progress."""
        self._tell("finish", status)

    def say(self, message: str) -> None:
        """As in Progress."""
        self._tell("say", message)

    def fail(self, message: str, code: int) -> None:
        """The worker ends because of this."""
        self._tell("error", message, code)


def carry_out_by_processes(spec: Spec, store: Store, options: Options, workers: int | None, arguments: list[str]) -> Outcome:
    """`carry_out` with several processes, by default on a CPU as many as it has cores. The number of threads that a run
    computes with is laid down in the plan when the folder is new: its last bits depend on it."""
    if workers is not None and workers < 1:
        raise SpecError(f"--workers {workers}: must be at least 1")
    free, runs, before = cores(), len(spec.units()), store.read_plan() or {}
    devices = before.get("devices", 1) if before else (1 if (workers or min(len(free), runs)) > 1 else None)
    if devices != 1:
        use_cores(devices)
    on_cpu = assemble.sequential()
    wanted = workers or (min(len(free), runs) if on_cpu else 1)
    threads = before.get("threads") or len(free) if before else max(1, len(free) // wanted)
    alone = not on_cpu or devices != 1
    if workers is not None and ((alone and workers > 1) or (before and not alone and threads != max(1, len(free) // workers))):
        how = f"{store.folder} was begun with {devices} devices in one process" if on_cpu else "one process has the accelerator"
        goes = f"{how}, and goes on so" if alone else f"each computes with {threads} threads, as {store.folder} was begun"
        print(f"cfljax: --workers {workers}: {goes}", file=sys.stderr)
    if alone or (wanted == 1 and threads >= len(free)):
        return carry_out(spec, store, options)
    todo = lay_down(spec, store, options, threads=threads)
    with Progress(sum(map(rounds_of, todo)), sum(len(b.runs) for b in todo), options.quiet, lines=wanted) as progress:
        for message in spec.warnings:
            progress.say(f"cfljax: {message}")
        if todo:
            watch(arguments, min(wanted, len(todo)), threads, progress, mark(spec))
    return outcome(spec, store, todo)


LOCAL = Entry(NoOptions, carry_out_by_processes)


def be_worker(place: str, processors: str, spec: Spec, store: Store, options: Options) -> int:
    """Do batches as worker `k/n`, its own programs first, so that each is compiled by one worker."""
    keep_to([int(p) for p in processors.split(",")])
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    number, count = map(int, place.split("/"))
    told = Told(0)
    try:
        if os.environ.get(WORKER) != mark(spec):
            raise SpecError(OTHERS)
        todo = lay_down(spec, store, options)
        programs = list(dict.fromkeys(batch.program_key for batch in todo))
        mine = set(programs[number::count])
        ordered = [b for b in todo if b.program_key in mine] + [b for b in reversed(todo) if b.program_key not in mine]
        for message in unlike(store) if number == 0 and todo else []:
            told.say(f"cfljax: {message}")
        work(ordered, store, options, told)
    except CfljaxError as error:
        told.fail(str(error), error.exit_code)
        return error.exit_code
    except OSError as error:
        told.fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), StoreError.exit_code)
        return StoreError.exit_code
    return 0


def watch(arguments: list[str], workers: int, threads: int, progress: Progress, mark: str) -> None:
    """Start the workers, show what they tell, and wait for them. A worker that dies is done without. `mark`: of the sweep."""
    events: queue.Queue[tuple[int, str | None]] = queue.Queue()
    free = cores()
    processes = []
    try:
        for k in range(workers):
            flags = ["--as-worker", f"{k}/{workers}", "--processors", ",".join(map(str, share_of(free, k, threads)))]
            command = [sys.executable, "-m", "cfljax.sweep", *arguments, *flags]
            processes.append(_start(command, mark))
            threading.Thread(target=_read, args=(k, processes[k], events), daemon=True).start()
        _show(events, workers, progress)
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()
    if all(codes):
        raise WorkerError(f"all {workers} workers ended early (exit codes {', '.join(map(str, codes))})", 1)


def share_of(free: list[int], number: int, threads: int) -> list[int]:
    """The processors of a worker: as many as it has threads, whatever the number of workers."""
    return [free[(number * threads + i) % len(free)] for i in range(min(threads, len(free)))]


def _start(command: list[str], mark: str) -> subprocess.Popen[str]:
    """In a session of its own: Ctrl-C is for the watcher, which ends its workers."""
    quiet = os.environ | {WORKER: mark}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=quiet,
        start_new_session=True,
    )


def _read(number: int, process: subprocess.Popen[str], events: queue.Queue[tuple[int, str | None]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        events.put((number, line))
    events.put((number, None))


def _show(events: queue.Queue[tuple[int, str | None]], workers: int, progress: Progress) -> None:
    """Until all workers have fallen silent."""
    while workers:
        number, line = events.get()
        if line is None:
            workers -= 1
            continue
        try:
            what, *values = json.loads(line)
        except ValueError:
            progress.say(line.rstrip())  # something that a library printed
            continue
        if what == "error":
            raise WorkerError(*values)
        if what in ("start", "update"):
            getattr(progress, what)(*values, line=number)
        else:
            getattr(progress, what)(*values)


def _end_with_parent(parent: int) -> None:
    """A worker whose watcher has gone is not wanted any more; what it has committed stays."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)
