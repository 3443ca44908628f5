"""Checkpoints of batches in the results folder, in the same sealed, atomic files as all its
contents. (Orbax would bring a second format, another layout of folders, and threads, for a handful
of arrays.)"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from cfljax.engine.resume import Checkpoint, End, Spent
from cfljax.errors import SpecError
from cfljax.registry.options import Table, Value
from cfljax.software import software
from cfljax.store import device
from cfljax.store.atomic import host

# Seconds between checkpoints, unless $CFLJAX_CHECKPOINT says otherwise; shorter batches need none
CHECKPOINT_SECONDS = 15.0

# A checkpoint as a store takes it: (arrays, what else it says, as JSON can hold it)
Saved = tuple[dict[str, np.ndarray], Table]


class CheckpointStore(Protocol):
    """What checkpoints are kept in: a results folder (`cfljax.store.Store`), or the way to one on
    another machine."""

    def save_checkpoint(self, name: str, arrays: dict[str, np.ndarray], meta: Table) -> None:
        """Store a batch's checkpoint, and replace its last one."""

    def load_checkpoint(self, name: str) -> Saved | None:
        """Return a batch's last checkpoint; None if there is none."""

    def set_aside_checkpoint(self, name: str, why: str) -> None:
        """Keep a batch's checkpoint under another name, and tell the user why."""

    def log(self, event: Table) -> None:
        """Add a line to the folder's log."""


def read_interval() -> float:
    """Return $CFLJAX_CHECKPOINT, else CHECKPOINT_SECONDS."""
    written = os.environ.get("CFLJAX_CHECKPOINT", "")
    try:
        seconds = float(written or CHECKPOINT_SECONDS)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise SpecError(
            f'CFLJAX_CHECKPOINT = "{written}": must be a number of seconds, 0 for a '
            "checkpoint at every chance"
        )
    return seconds


class Checkpoints:
    """The checkpoints of one batch in a store; the folder's log says who began it, where and when,
    and when it was done."""

    def __init__(self, store: CheckpointStore, batch: str, every: float | None = None):
        self.store = store
        self.batch = batch
        self.every = read_interval() if every is None else every
        self.last = time.monotonic()

    def save(self, make: Callable[[], Checkpoint]) -> None:
        """Store the checkpoint that `make` returns, unless the last one is fresh."""
        if time.monotonic() - self.last >= self.every:
            self._write(make())
            self.last = time.monotonic()

    def _write(self, checkpoint: Checkpoint) -> None:
        self.store.save_checkpoint(self.batch, *to_arrays(checkpoint))

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint that the same versions have written; None if there is none."""
        saved = self.store.load_checkpoint(self.batch)
        if saved is not None and (differences := list_differences(saved[1].get("made_by"))):
            self.refuse(f"it was made by {differences}")
            saved = None
        checkpoint = None if saved is None else from_arrays(*saved)
        log_batch(
            self.store, "begin", self.batch, {"from": 0 if checkpoint is None else checkpoint.done}
        )
        return checkpoint

    def refuse(self, why: str) -> None:
        """Set the checkpoint aside, as the batch cannot go on from it."""
        self.store.set_aside_checkpoint(self.batch, why)


def log_batch(store: CheckpointStore, event: str, batch: str, more: Table | None = None) -> None:
    """Log what has happened to a batch ("begin", "done"), in which process, and when."""
    store.log(
        {
            "event": event,
            "batch": batch,
            **(more or {}),
            "pid": os.getpid(),
            "host": host(),
            "time": time.time(),
        }
    )


def _describe_writer() -> Table:
    """Return what must be equal for a checkpoint to be used."""
    return {**software(), "device": device()}


def list_differences(written: Value) -> str:
    """Name what a checkpoint was made by and what is different now; "" if nothing is."""
    now = _describe_writer()
    then = written if isinstance(written, dict) else {}
    names = [name for name in now | then if now.get(name) != then.get(name)]
    return ", ".join(
        f"{name} {then.get(name, 'unknown')} (now {now.get(name, 'none')})" for name in names
    )


def to_arrays(checkpoint: Checkpoint) -> Saved:
    """Convert the checkpoint to arrays and JSON, as a store takes it."""
    arrays = {f"carry/{i}": np.asarray(leaf) for i, leaf in enumerate(checkpoint.carry.values())}
    arrays |= {f"rows/{name}": values for name, values in checkpoint.rows.items()}
    meta: Table = {
        "done": checkpoint.done,
        "carry": list(checkpoint.carry),
        "spent": checkpoint.spent,
        "made_by": _describe_writer(),
    }
    if checkpoint.end is not None:
        meta["end"] = checkpoint.end
    if checkpoint.stopped:
        meta["stopped"] = checkpoint.stopped
    return arrays, meta


def from_arrays(arrays: dict[str, np.ndarray], meta: Table) -> Checkpoint:
    """Restore the checkpoint from what `to_arrays` returned."""
    rows = {
        name.removeprefix("rows/"): values
        for name, values in arrays.items()
        if name.startswith("rows/")
    }
    carry = {name: arrays[f"carry/{i}"] for i, name in enumerate(meta["carry"])}
    end = End(*meta["end"]) if "end" in meta else None
    stopped = tuple(meta.get("stopped", ()))
    return Checkpoint(int(meta["done"]), carry, rows, Spent(*meta["spent"]), end, stopped)
