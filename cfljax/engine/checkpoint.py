"""HOST. Going on with a batch of runs: what a checkpoint holds, and whether it fits the program that goes on from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.engine.program import Carry


class Spent(NamedTuple):
    """Seconds, of all starts of a batch."""

    setup: float
    compile: float
    rounds: float
    """In chunks of rounds, evaluations included."""
    evaluation: float
    """What one evaluation costs."""


class Checkpoint(NamedTuple):
    """Where a batch stands between two chunks."""

    done: int
    """Rounds."""
    carry: dict[str, Any]
    """The arrays of the engine's Carry, by where they are in it."""
    rows: dict[str, Any]
    """The history so far: [R, T', …] each."""
    spent: Spent


class CheckpointMismatch(ValueError):
    """A checkpoint is not of this program."""


def named(carry: Carry) -> dict[str, Any]:
    """Its arrays by where they are in it: `.state.models`."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(carry)}


def restore(shape: Carry, saved: dict[str, Any]) -> Carry:
    """The Carry of a checkpoint; CheckpointMismatch when it is of another program."""
    wanted = named(shape)
    for name in [*wanted, *saved]:
        a, b = wanted.get(name), saved.get(name)
        if a is None or b is None or (a.shape, a.dtype) != (b.shape, b.dtype):
            raise CheckpointMismatch(f"it does not fit this program: {name} is {_form(b)} in it and must be {_form(a)}")
    return jax.tree.unflatten(jax.tree.structure(shape), [jnp.asarray(saved[name]) for name in wanted])


def _form(array: Any) -> str:
    return "missing" if array is None else f"{array.dtype}{list(array.shape)}"


def check_rows(first: dict[str, Any], last: dict[str, Any]) -> None:
    """CheckpointMismatch where a checkpoint's history has other quantities."""
    forms = [{jax.tree_util.keystr(path): a.shape[2:] for path, a in jax.tree.leaves_with_path(rows)} for rows in (first, last)]
    if forms[0] != forms[1]:
        raise CheckpointMismatch("its history has other quantities than this program's")
