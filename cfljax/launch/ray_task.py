"""What runs on the machines of a Ray cluster: one batch, told as plain words, to units that go back to the one writer."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import numpy as np

from cfljax.config import Spec, plugins, read_spec
from cfljax.devices import mesh
from cfljax.devices.cores import threads, use_cores, use_threads
from cfljax.errors import CfljaxError, SpecError
from cfljax.experiment.assemble import sequential
from cfljax.experiment.batching import Batch
from cfljax.files import use_compilation_cache
from cfljax.launch.batch import InHalves, run_batch
from cfljax.launch.keeper import Keeper
from cfljax.launch.plan_file import OTHERS, as_laid_down, batch_limit
from cfljax.local import speed

Saved = tuple[dict[str, np.ndarray], dict[str, Any]]
"""A checkpoint as the store takes it: (arrays, meta)."""


class Mailbox:
    """An actor between the tasks and the writer: what tasks tell while they run, and their last checkpoints, which a task that
    runs again starts from."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.checkpoints: dict[str, Saved] = {}
        self.fresh: set[str] = set()

    def tell(self, *message: Any) -> None:
        """From a task: ("start", batch, process), ("at", batch, rounds done, accuracy), ("log", batch, event) or
        ("warn", "", words)."""
        self.told.append(message)

    def save(self, batch: str, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """From a task: its checkpoint."""
        self.checkpoints[batch] = arrays, meta
        self.fresh.add(batch)

    def last(self, batch: str) -> Saved | None:
        """For a task: its last checkpoint."""
        return self.checkpoints.get(batch)

    def forget(self, batch: str) -> None:
        """From the writer: the batch is done."""
        self.checkpoints.pop(batch, None)
        self.fresh.discard(batch)

    def empty(self) -> tuple[list[tuple[Any, ...]], dict[str, Saved]]:
        """For the writer: (messages, checkpoints) since the last time."""
        told, saved = self.told, {name: self.checkpoints[name] for name in self.fresh}
        self.told, self.fresh = [], set()
        return told, saved


class _Post:
    """The part of a store that a Keeper needs, at the other end of the line."""

    def __init__(self, mailbox: Any, saved: Saved | None):
        self.mailbox, self.saved = mailbox, saved

    def save_checkpoint(self, name: str, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        self.mailbox.save.remote(name, arrays, meta)

    def load_checkpoint(self, name: str) -> Saved | None:
        import ray

        return ray.get(self.mailbox.last.remote(name)) or self.saved

    def warn(self, message: str) -> None:
        self.mailbox.tell.remote("warn", "", message)

    def log(self, event: dict[str, Any]) -> None:
        self.mailbox.tell.remote("log", event["batch"], event)


def compute(words: dict[str, Any], mailbox: Any, saved: Saved | None) -> tuple[Any, ...]:
    """("units", units), ("halves", why) where they are to be done in its place, or ("error", message, exit code). `saved`: the
    checkpoint of an earlier start."""
    try:
        _prepare(words)
        batch = _batch(words)
        mailbox.tell.remote("start", batch.id, os.getpid())
        if sequential() and threads() != words["threads"]:
            had = f"a task computed with {threads()} threads, for {words['threads']} in the plan"
            mailbox.tell.remote("warn", "", f"{had}: its runs agree with the rest to rounding, not to the last bit")

        def report(done: int, accuracy: float | None) -> None:
            mailbox.tell.remote("at", batch.id, done, accuracy)

        keeper = Keeper(_Post(mailbox, saved), batch.id)  # type: ignore[arg-type]
        return "units", run_batch(batch, words["keep"], report, keeper)
    except InHalves as why:
        return "halves", str(why)
    except CfljaxError as error:
        return "error", str(error), error.exit_code


def limit(words: dict[str, Any]) -> int:
    """How many runs the device of a task takes side by side."""
    _prepare(words)
    return batch_limit(_batch(words).first)


def _prepare(words: dict[str, Any]) -> None:
    """The task's process as the plan wants it."""
    with contextlib.suppress(OSError):  # on another machine the folder may not be there; relative paths then fail by name
        os.chdir(words["folder"])
    if words["plugins"]:
        plugins.load(words["plugins"])
    use_cores(words["devices"])
    use_threads(words["threads"])
    if "speed" in words:
        speed.use(speed.Speed(*words["speed"]))
        mesh.ask(None if words["mesh"] is None else mesh.Shape(*words["mesh"]))
        mesh.check()
    if words["cache"]:
        use_compilation_cache()


_read: dict[str, Spec] = {}
"""The last spec that this process has read."""


def _batch(words: dict[str, Any]) -> Batch:
    text = json.dumps([words["table"], words["sets"], plugins.loaded()], sort_keys=True)
    if text not in _read:
        _read.clear()
        _read[text] = read_spec(words["table"], words["sets"])
    by_id = {run.id: run for run in _read[text].units()}
    missing = [name for name in words["runs"] if name not in by_id]
    batch = None if missing else as_laid_down([by_id[name] for name in words["runs"]], words["width"])
    if batch is None:
        raise SpecError(f"--launcher ray: {OTHERS}")
    return batch
