"""A batch's state in the results folder, in the same sealed, atomic files as everything else there. (Orbax would bring a
second format, its own folder layout and threads; what has to be kept here is a handful of arrays.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cfljax.simulate import Checkpoint
from cfljax.store import Store, provenance

EVERY = 15.0
"""Seconds between checkpoints; shorter batches need none."""


class Keeper:
    """Saves a batch's checkpoints when it is time, and finds the last one."""

    def __init__(self, store: Store, name: str, every: float = EVERY):
        self.store, self.name, self.every = store, name, every
        self.last = time.monotonic()

    def save(self, make: Callable[[], Checkpoint]) -> None:
        """Keep the checkpoint that `make` gives, unless the last one is fresh."""
        if time.monotonic() - self.last >= self.every:
            self.store.save_checkpoint(self.name, *to_arrays(make()))
            self.last = time.monotonic()

    def load(self) -> Checkpoint | None:
        """The last checkpoint, if one is there that the same versions have written."""
        found = self.store.load_checkpoint(self.name)
        return None if found is None or found[1].get("versions") != _versions() else from_arrays(*found)

    def remove(self) -> None:
        """The batch is done."""
        self.store.remove_checkpoint(self.name)


def _versions() -> dict[str, Any]:
    facts = provenance()
    return {"versions": facts["versions"], "device": facts["device"]}


def to_arrays(checkpoint: Checkpoint) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, meta) for the store."""
    arrays = {f"carry/{i}": np.asarray(leaf) for i, leaf in enumerate(checkpoint.carry)}
    arrays |= {f"rows/{name}": values for name, values in _flat(checkpoint.rows)}
    return arrays, {"done": checkpoint.done, "leaves": len(checkpoint.carry), "versions": _versions()}


def from_arrays(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Checkpoint:
    """The checkpoint back again."""
    rows: dict[str, Any] = {"diag": {}}
    for name, values in arrays.items():
        if name.startswith("rows/diag/"):
            rows["diag"][name.removeprefix("rows/diag/")] = values
        elif name.startswith("rows/"):
            rows[name.removeprefix("rows/")] = values
    return Checkpoint(int(meta["done"]), [arrays[f"carry/{i}"] for i in range(meta["leaves"])], rows)


def _flat(rows: dict[str, Any]) -> list[tuple[str, np.ndarray]]:
    plain = [(name, values) for name, values in rows.items() if name != "diag"]
    return plain + [(f"diag/{name}", values) for name, values in rows["diag"].items()]
