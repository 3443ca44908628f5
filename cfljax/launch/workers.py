"""A sweep by several processes of this machine, for CPUs: a small program does not use more than
one core, so two runs in two processes take the time of one. The processes share the results folder;
the one that starts them only watches."""

from __future__ import annotations

import functools
import json
import os
import queue
import secrets
import sys
import threading
from collections.abc import Callable
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, NamedTuple

from cfljax.config import Spec
from cfljax.devices.cores import keep_to, list_cores, use_cores
from cfljax.devices.machine import describe_machine, list_messages
from cfljax.errors import CfljaxError, SpecError, StoreError
from cfljax.experiment.batching import Batch
from cfljax.launch.plan_file import OTHER_SWEEP_ERROR, fingerprint, list_differences
from cfljax.launch.progress import Progress
from cfljax.launch.sweep import (
    Outcome,
    SweepOptions,
    Worker,
    carry_out,
    count_outcome,
    prepare_batches,
    start_progress,
    work,
)
from cfljax.store import Store

WORKER_VARIABLE = "CFLJAX_WORKER"
"""The variable that workers have in their environment: the fingerprint of their sweep
(`plan_file.fingerprint`). They compute its runs or none, and leave advice to the user to the
process that has started them."""
EVENT_WORD_VARIABLE = "CFLJAX_EVENT_WORD"
"""The variable with the word before the events that a worker prints. It is random, so that nothing
that plug-ins and libraries print looks like an event."""


class WorkerError(CfljaxError):
    """An error that ended a worker, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.exit_code = code


class RelayedProgress(Progress):
    """A worker's progress: events on standard output, for the process that watches. An event is a
    line of this `word` and JSON."""

    def __init__(self, word: str):
        super().__init__(quiet=True)
        self.word = word

    def tell(self, what: str, *values: object) -> None:
        """Print an event."""
        try:
            # One call, because threads of plug-ins may print at the same time
            sys.stdout.write(f"{self.word}{json.dumps([what, *values])}\n")
            sys.stdout.flush()
        # The watching process was killed. The run is not recorded as failed: others will do it.
        except BrokenPipeError:
            os._exit(1)

    start = functools.partialmethod(tell, "start")  # type: ignore[assignment]
    update = functools.partialmethod(tell, "update")  # type: ignore[assignment]
    finish = functools.partialmethod(tell, "finish")  # type: ignore[assignment]
    say = functools.partialmethod(tell, "say")  # type: ignore[assignment]
    # The error that ends the worker: its message and exit code
    fail = functools.partialmethod(tell, "error")

    def pass_over(self, rounds: int, label: str = "") -> None:
        """Do nothing: the process that did the rounds reports them."""


def split_event(line: str, word: str) -> tuple[str, list[Any] | None]:
    """Split a line that a worker printed into an event, None if it has none, and the text around
    it, which others printed without the end of a line."""
    line = line.rstrip("\r\n")
    before, _, rest = line.partition(f"{word}[")
    try:
        event, end = json.JSONDecoder().raw_decode(f"[{rest}")
    except ValueError:
        return line, None
    return before + rest[end - 1 :], event


class WorkerLayout(NamedTuple):
    """The processes that share the work on a folder."""

    size: int
    # With which each computes
    threads: int


def choose_layout(store: Store, runs: int, workers: int | None) -> WorkerLayout | None:
    """Choose the processes that compute this number of runs, by default one per core of a CPU;
    None: this process alone. A folder continues as it was begun, because the last bits of results
    depend on it; a line says so if `workers` asks for something else."""
    free = list_cores()
    before = store.read_plan() or {}
    if before:
        devices = before.get("devices", 1)
    else:
        # A process among several has one device; a single one may divide the CPU into more
        devices = 1 if (workers or min(len(free), runs)) > 1 else None
    if devices != 1:
        use_cores(devices)
    on_cpu = describe_machine().sequential
    wanted = workers or (min(len(free), runs) if on_cpu else 1)
    threads = before.get("threads") or len(free) if before else max(1, len(free) // wanted)
    alone = not on_cpu or devices != 1
    if workers is not None and (
        (alone and workers > 1)
        or (before and not alone and threads != max(1, len(free) // workers))
    ):
        how = (
            f"{store.folder} was begun with {devices} devices in one process"
            if on_cpu
            else "one process has the accelerator"
        )
        goes = (
            f"{how}, and continues so"
            if alone
            else f"each computes with {threads} threads, as {store.folder} was begun"
        )
        print(f"cfljax: --workers {workers}: {goes}", file=sys.stderr)
    if alone or (wanted == 1 and threads >= len(free)):
        return None
    return WorkerLayout(min(wanted, max(1, runs)), threads)


def carry_out_by_processes(
    spec: Spec,
    store: Store,
    options: SweepOptions,
    workers: int | None,
    arguments: list[str],
    command: str = "sweep",
    shown: Progress | None = None,
) -> Outcome:
    """Do `carry_out` by several processes; a new folder's plan.json keeps a run's threads.
    `command`: what the workers run. `shown`: as for `carry_out`."""
    layout = choose_layout(store, len(spec.units()), workers)
    if layout is None:
        return carry_out(spec, store, options, shown=shown)
    todo, _ = prepare_batches(spec, store, options, threads=layout.threads)
    with start_progress(spec, store, todo, options, layout.size, shown) as progress:
        for message in spec.warnings:
            progress.say(f"cfljax: {message}")
        if todo:
            watch_workers(
                arguments,
                layout._replace(size=min(layout.size, len(todo))),
                progress,
                fingerprint(spec),
                command,
            )
    return count_outcome(spec, store, todo)


def run_worker(share: str, processors: str, spec: Spec, store: Store, options: SweepOptions) -> int:
    """Compute batches as worker `k/n`, first those of its share of programs, each of which one
    worker compiles."""
    number, count = map(int, share.split("/"))

    def do(progress: Progress) -> None:
        todo, machine = prepare_batches(spec, store, options)
        for message in (
            [*list_messages(machine), *list_differences(store, machine)]
            if number == 0 and todo
            else []
        ):
            progress.say(f"cfljax: {message}")
        work(order_batches(todo, number, count), Worker(store, options, progress, machine))

    return run_as_worker(do, processors, fingerprint(spec))


def order_batches(todo: list[Batch], number: int, count: int) -> list[Batch]:
    """Sort the batches into the order in which worker `number` of `count` takes them."""
    first = set(list(dict.fromkeys(batch.program_key for batch in todo))[number::count])
    return [b for b in todo if b.program_key in first] + [
        b for b in reversed(todo) if b.program_key not in first
    ]


def run_as_worker(do: Callable[[Progress], None], processors: str, mark: str) -> int:
    """Do the work of a worker on its processors, for the sweep of this `mark`; return its exit
    code."""
    keep_to([int(p) for p in processors.split(",")])
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    progress = RelayedProgress(os.environ.get(EVENT_WORD_VARIABLE, ""))
    try:
        if os.environ.get(WORKER_VARIABLE) != mark:
            raise SpecError(OTHER_SWEEP_ERROR)
        do(progress)
    except CfljaxError as error:
        progress.fail(str(error), error.exit_code)
        return error.exit_code
    except OSError as error:
        progress.fail(
            f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), StoreError.exit_code
        )
        return StoreError.exit_code
    return 0


def watch_workers(
    arguments: list[str],
    layout: WorkerLayout,
    progress: Progress,
    mark: str,
    command: str = "sweep",
) -> None:
    """Start the workers, show their progress, and wait for them. If a worker dies, the others go
    on."""
    workers = layout.size
    module = f"cfljax.{command}"
    events: queue.Queue[tuple[int, str | None]] = queue.Queue()
    free = list_cores()
    word = secrets.token_hex(8)
    processes = []
    try:
        for k in range(workers):
            flags = [
                "--as-worker",
                f"{k}/{workers}",
                "--processors",
                ",".join(map(str, choose_processors(free, k, layout.threads))),
            ]
            environment = os.environ | {WORKER_VARIABLE: mark, EVENT_WORD_VARIABLE: word}
            command_line = [sys.executable, "-m", module, *arguments, *flags]
            processes.append(_start(command_line, environment))
            threading.Thread(
                target=_read_lines, args=(k, processes[k], events), daemon=True
            ).start()
        _show_events(events, workers, progress, word)
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()
    if all(codes):
        raise WorkerError(
            f"all {workers} workers ended early (exit codes {', '.join(map(str, codes))})", 1
        )


def choose_processors(free: list[int], number: int, threads: int) -> list[int]:
    """Return the processors of a worker: as many as it has threads, whatever the number of
    workers."""
    return [free[(number * threads + i) % len(free)] for i in range(min(threads, len(free)))]


def _start(command: list[str], environment: dict[str, str]) -> Popen[str]:
    """Start a worker in a new session: Ctrl-C is for the watching process, which ends its
    workers."""
    return Popen(
        command,
        stdin=DEVNULL,
        stdout=PIPE,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,
    )


def _read_lines(
    number: int, process: Popen[str], events: queue.Queue[tuple[int, str | None]]
) -> None:
    """Put (number, line) into the queue for each line that the worker prints, then (number,
    None)."""
    assert process.stdout is not None
    for line in process.stdout:
        events.put((number, line))
    events.put((number, None))


def _show_events(
    events: queue.Queue[tuple[int, str | None]], workers: int, progress: Progress, word: str
) -> None:
    """Show the events of all workers until each has ended; raise a WorkerError if one reports an
    error. `word`: stands before each event."""
    while workers:
        number, line = events.get()
        if line is None:
            workers -= 1
            continue
        text, event = split_event(line, word)
        if text or event is None:
            # A plug-in or a library has printed it
            progress.say(text)
        if event is None:
            continue
        what, *values = event
        if what == "error":
            raise WorkerError(*values)
        if what in ("start", "update"):
            getattr(progress, what)(*values, line=number)
        else:
            getattr(progress, what)(*values)


def _end_with_parent(parent: int) -> None:
    """End this worker when the process that watches it has ended; its committed results stay."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)
