"""A batch's state in the results folder, in the same sealed, atomic files as everything else there. (Orbax would bring a
second format, its own folder layout and threads; what has to be kept here is a handful of arrays.)"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cfljax.engine.checkpoint import Checkpoint, Spent
from cfljax.errors import SpecError
from cfljax.store import Store, provenance
from cfljax.store.atomic import host

EVERY = 15.0
"""Seconds between checkpoints, unless $CFLJAX_CHECKPOINT says otherwise; shorter batches need none."""

FORMAT = 2
"""Of what is kept: a checkpoint of another format is not gone on from."""


def seconds_between() -> float:
    """$CFLJAX_CHECKPOINT, else EVERY."""
    written = os.environ.get("CFLJAX_CHECKPOINT", "")
    try:
        seconds = float(written or EVERY)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise SpecError(f'CFLJAX_CHECKPOINT = "{written}": must be a number of seconds, 0 for a checkpoint at every chance')
    return seconds


class Keeper:
    """Saves a batch's checkpoints when it is time, and finds the last one. Who began a batch where, and when it was done, is
    in the folder's log."""

    def __init__(self, store: Store, name: str, every: float | None = None):
        self.store, self.name = store, name
        self.every = seconds_between() if every is None else every
        self.last = time.monotonic()

    def save(self, make: Callable[[], Checkpoint]) -> None:
        """Keep the checkpoint that `make` gives, unless the last one is fresh."""
        if time.monotonic() - self.last >= self.every:
            self.store.save_checkpoint(self.name, *to_arrays(make()))
            self.last = time.monotonic()

    def load(self) -> Checkpoint | None:
        """The last checkpoint, if one is there that the same versions have written."""
        found = self.store.load_checkpoint(self.name)
        written = None if found is None else found[1].get("versions")
        if found is not None and written != _versions():
            self.refuse(f"it was written by {_other(written)}")
            found = None
        checkpoint = None if found is None else from_arrays(*found)
        self._log("begin", 0 if checkpoint is None else checkpoint.done)
        return checkpoint

    def refuse(self, why: str) -> None:
        """Say that a checkpoint cannot be gone on from."""
        self.store.warn(f"checkpoint {self.name} is of no use: {why}; its runs start again from round 0")

    def remove(self) -> None:
        """The batch is done."""
        self.store.remove_checkpoint(self.name)
        self._log("done")

    def _log(self, event: str, done: int | None = None) -> None:
        rounds = {} if done is None else {"from": done}
        self.store.log({"event": event, "batch": self.name, **rounds, "pid": os.getpid(), "host": host(), "time": time.time()})


def _versions() -> dict[str, Any]:
    facts = provenance()
    return {"format": FORMAT, "versions": facts["versions"], "device": facts["device"]}


def _other(written: Any) -> str:
    """What of the versions is not today's."""
    now, then = _one_table(_versions()), _one_table(written)
    differ = [f"{name} {then.get(name, '?')} (now {now[name]})" for name in now if now[name] != then.get(name)]
    return ", ".join(differ) or "another version"


def _one_table(written: Any) -> dict[str, Any]:
    if not isinstance(written, dict) or not isinstance(written.get("versions"), dict):
        return {}
    return {**written["versions"], "device": written.get("device"), "checkpoint format": written.get("format", 1)}


def to_arrays(checkpoint: Checkpoint) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, meta) for the store."""
    arrays = {f"carry/{i}": np.asarray(leaf) for i, leaf in enumerate(checkpoint.carry.values())}
    arrays |= {f"rows/{name}": values for name, values in _flat(checkpoint.rows)}
    meta = {"done": checkpoint.done, "carry": list(checkpoint.carry), "spent": checkpoint.spent, "versions": _versions()}
    return arrays, meta


def from_arrays(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Checkpoint:
    """The checkpoint back again."""
    rows: dict[str, Any] = {"diag": {}}
    for name, values in arrays.items():
        if name.startswith("rows/diag/"):
            rows["diag"][name.removeprefix("rows/diag/")] = values
        elif name.startswith("rows/"):
            rows[name.removeprefix("rows/")] = values
    carry = {name: arrays[f"carry/{i}"] for i, name in enumerate(meta["carry"])}
    return Checkpoint(int(meta["done"]), carry, rows, Spent(*meta["spent"]))


def _flat(rows: dict[str, Any]) -> list[tuple[str, np.ndarray]]:
    plain = [(name, values) for name, values in rows.items() if name != "diag"]
    return plain + [(f"diag/{name}", values) for name, values in rows["diag"].items()]
