"""HOST. Resume a batch of runs: the content of a checkpoint, and whether it fits the program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.engine.settings import Carry
from cfljax.lazy import jax, jnp
from cfljax.types import Tree

Rows = dict[str, np.ndarray]
"""The history of a batch: an array [R, T', …] per quantity. The names of diagnostics begin with `diag/`."""


class Spent(NamedTuple):
    """Seconds that a batch has taken, over all its starts."""

    setup: float
    compile: float
    rounds: float  # In chunks of rounds, evaluations included
    evaluation: float  # What one evaluation costs


class Checkpoint(NamedTuple):
    """The state of a batch between two chunks of rounds."""

    done: int  # Rounds that are done
    carry: dict[str, np.ndarray]  # The arrays of the engine's Carry, by their names in it: `.state.models`
    rows: Rows  # The history so far
    spent: Spent


class CheckpointMismatch(ValueError):
    """A checkpoint of another program."""


def name_arrays(carry: Carry) -> dict[str, Tree]:
    """Name the arrays of a Carry: `.state.models`."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(carry)}


def restore(shape: Carry, saved: dict[str, np.ndarray]) -> Carry:
    """Restore the Carry of a checkpoint. `shape`: the shapes of this program's Carry. Raises CheckpointMismatch if a name is
    missing on either side, or an array has another shape or type."""
    wanted = name_arrays(shape)
    for name in [*wanted, *saved]:
        a, b = wanted.get(name), saved.get(name)
        if a is None or b is None or (a.shape, a.dtype) != (b.shape, b.dtype):
            raise CheckpointMismatch(f"it does not fit this program: {name} is {_format(b)} but must be {_format(a)}")
    return jax.tree.unflatten(jax.tree.structure(shape), [jnp.asarray(saved[name]) for name in wanted])


def _format(array: Tree) -> str:
    return "missing" if array is None else f"{array.dtype}{list(array.shape)}"


def check_rows(saved: Rows, new: Rows) -> None:
    """Raise CheckpointMismatch if a checkpoint's history has other quantities, or other shapes of them, than this program's."""
    if {name: a.shape[2:] for name, a in saved.items()} != {name: a.shape[2:] for name, a in new.items()}:
        raise CheckpointMismatch("its history has other quantities than this program's")
