"""What runs on the machines of a Ray cluster: a task computes one batch, and its units go back to
the process that writes."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Literal, TypedDict

import numpy as np

from cfljax.config import Spec, plugins, read_spec
from cfljax.devices.cores import use_cores, use_threads
from cfljax.devices.machine import TYPICAL, Machine, Speed, describe_machine
from cfljax.devices.mesh import Shape
from cfljax.errors import CfljaxError, SpecError
from cfljax.experiment.batching import Batch
from cfljax.experiment.widths import batch_limit
from cfljax.files import use_compilation_cache
from cfljax.launch.batch import SplitBatch, Unit, run_batch
from cfljax.launch.checkpoints import Checkpoints, Saved
from cfljax.launch.plan_file import OTHER_SWEEP_ERROR, make_batch
from cfljax.registry.options import Table, Value

# Ray's handle of the actor `Mailbox`: its methods are called as `mailbox.post.remote(…)`
RemoteMailbox = Value


class Order(TypedDict, total=False):
    """What a task is to do, in JSON's types."""

    # The spec
    table: Table
    # The values of `--set`
    sets: list[str]
    # Files of plugins
    plugins: list[str]
    # What a unit keeps (`SweepOptions.keep`)
    keep: str
    # Whether compiled programs are kept on disk
    cache: bool
    # The folder that relative paths start from
    folder: str
    threads: int
    # Devices that a CPU is divided into
    devices: int
    # The fields of the settled Speed; absent before it is settled, as `mesh` is
    speed: list[float]
    mesh: list[int] | None
    # The ids of the batch's runs
    runs: list[str]
    # How many runs the batch's program is compiled for
    width: int


class Mailbox:
    """An actor between tasks and writer: messages of running tasks, and last checkpoints for tasks
    that run again."""

    def __init__(self) -> None:
        self.messages: list[tuple[Value, ...]] = []
        self.checkpoints: dict[str, Saved] = {}
        self.fresh: set[str] = set()

    def post(self, *message: Value) -> None:
        """Take a message of a task: ("start", batch), ("at", batch, rounds done, accuracy), ("log",
        batch, event), ("aside", batch, why its checkpoint is set aside) or ("warn", "", words)."""
        self.messages.append(message)

    def save(self, batch: str, arrays: dict[str, np.ndarray], meta: Table) -> None:
        """Take a task's checkpoint."""
        self.checkpoints[batch] = arrays, meta
        self.fresh.add(batch)

    def last_checkpoint(self, batch: str) -> Saved | None:
        """Return a task's last checkpoint."""
        return self.checkpoints.get(batch)

    def forget(self, batch: str) -> None:
        """Drop the checkpoint of a batch that is done."""
        self.checkpoints.pop(batch, None)
        self.fresh.discard(batch)

    def take_news(self) -> tuple[list[tuple[Value, ...]], dict[str, Saved]]:
        """Return (messages, checkpoints) since the last time, for the writer."""
        messages = self.messages
        saved = {name: self.checkpoints[name] for name in self.fresh}
        self.messages = []
        self.fresh = set()
        return messages, saved


class _MailedCheckpoints:
    """The CheckpointStore of a task, whose checkpoints go to the mailbox. `saved`: the checkpoint
    of an earlier start."""

    def __init__(self, mailbox: RemoteMailbox, saved: Saved | None):
        self.mailbox = mailbox
        self.saved = saved

    def save_checkpoint(self, name: str, arrays: dict[str, np.ndarray], meta: Table) -> None:
        self.mailbox.save.remote(name, arrays, meta)

    def load_checkpoint(self, name: str) -> Saved | None:
        import ray

        saved: Saved | None = ray.get(self.mailbox.last_checkpoint.remote(name))
        return saved or self.saved

    def set_aside_checkpoint(self, name: str, why: str) -> None:
        self.saved = None
        self.mailbox.forget.remote(name)
        self.mailbox.post.remote("aside", name, why)

    def log(self, event: Table) -> None:
        self.mailbox.post.remote("log", event["batch"], event)


Answer = (
    tuple[Literal["units"], list[Unit]]
    | tuple[Literal["halves"], str]
    | tuple[Literal["error"], str, int]
)
"""What a task returns: the units of its batch, why its halves are to be computed in its place, or
(message, exit code)."""


def compute(order: Order, mailbox: RemoteMailbox, saved: Saved | None) -> Answer:
    """Compute a batch. `saved`: the checkpoint of an earlier start."""
    try:
        machine = _prepare(order)
        batch = _read_batch(order)
        mailbox.post.remote("start", batch.id)
        if machine.sequential and machine.threads != order["threads"]:
            had = (
                f"a task computed with {machine.threads} threads, for {order['threads']} in the "
                "plan"
            )
            mailbox.post.remote(
                "warn", "", f"{had}: its runs agree with the rest to rounding, not to the last bit"
            )

        def report(done: int, accuracy: float | None) -> None:
            mailbox.post.remote("at", batch.id, done, accuracy)

        checkpoints = Checkpoints(_MailedCheckpoints(mailbox, saved), batch.id)
        return "units", run_batch(batch, machine, order["keep"], report, checkpoints)
    except SplitBatch as why:
        return "halves", str(why)
    except CfljaxError as error:
        return "error", str(error), error.exit_code


def limit(order: Order) -> int:
    """Return how many runs the device of a task computes side by side."""
    machine = _prepare(order)
    return batch_limit(list(_read_batch(order).runs), machine)


def _prepare(order: Order) -> Machine:
    """Prepare the task's process as the plan says, and return its machine, with the mesh and speed
    of the plan."""
    # Another machine may lack the folder: a relative path then raises an error that names it
    with contextlib.suppress(OSError):
        os.chdir(order["folder"])
    if order["plugins"]:
        plugins.load(order["plugins"])
    use_cores(order["devices"])
    use_threads(order["threads"])
    shape = order.get("mesh")
    machine = describe_machine(
        None if shape is None else Shape(*shape),
        Speed(*order["speed"]) if "speed" in order else TYPICAL,
    )
    machine.shape()
    if order["cache"]:
        use_compilation_cache()
    return machine


# The last spec that this process has read, by its text: most tasks of a process are of one sweep
_last_spec: dict[str, Spec] = {}


def _read_batch(order: Order) -> Batch:
    """Return the batch of the order; raise a SpecError if this machine's files do not make its
    runs."""
    text = json.dumps([order["table"], order["sets"], plugins.list_loaded()], sort_keys=True)
    if text not in _last_spec:
        _last_spec.clear()
        _last_spec[text] = read_spec(order["table"], order["sets"])
    by_id = {run.id: run for run in _last_spec[text].units()}
    missing = [name for name in order["runs"] if name not in by_id]
    batch = None if missing else make_batch([by_id[name] for name in order["runs"]], order["width"])
    if batch is None:
        raise SpecError(f"--launcher ray: {OTHER_SWEEP_ERROR}")
    return batch
