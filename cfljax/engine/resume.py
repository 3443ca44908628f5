"""HOST. Resume a batch of runs: the content of a checkpoint, and whether it fits the program."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from cfljax.devices import distributed
from cfljax.engine.settings import Carry
from cfljax.lazy import jax, jnp
from cfljax.types import Tree

# The history of a batch: an array [R, T', …] per quantity. The names of diagnostics begin with
# `diag/`
Rows = dict[str, np.ndarray]


class Spent(NamedTuple):
    """Seconds that a batch has taken, over all its starts."""

    setup: float
    compile: float
    # In chunks of rounds, evaluations included
    rounds: float
    # What one evaluation costs
    evaluation: float


class End(NamedTuple):
    """How a run has ended, for a longer run that continues from its last state."""

    # `train.rounds` of the run
    rounds: int
    # Whether the method's host step after the last round has been done (`Method.regroup`)
    regrouped: bool
    # The execution plan, as the record has it
    plan: str = ""


class Checkpoint(NamedTuple):
    """The state of a batch between two chunks of rounds."""

    # Rounds that are done
    done: int
    # The arrays of the engine's Carry, by their names in it: `.state.models`
    carry: dict[str, np.ndarray]
    # The history so far
    rows: Rows
    spent: Spent
    # How the runs that are to be continued have ended; None: the state is of unfinished runs
    end: End | None = None
    # The round in which the user's callback has stopped each run, −1: it has not; (): it stopped
    # none
    stopped: tuple[int, ...] = ()


def take_run(checkpoint: Checkpoint, at: int, width: int) -> Checkpoint:
    """Return the checkpoint of one run of a batch of this width, with its share of the seconds."""
    return checkpoint._replace(
        carry={name: np.asarray(a)[at : at + 1] for name, a in checkpoint.carry.items()},
        rows={name: a[at : at + 1] for name, a in checkpoint.rows.items()},
        spent=Spent(*(seconds / width for seconds in checkpoint.spent)),
        stopped=checkpoint.stopped[at : at + 1],
    )


def join_runs(each: list[Checkpoint], width: int) -> Checkpoint:
    """Join the checkpoints of runs to one of a batch of this width, as `take_run` divides it. The
    last run is repeated, as in `Batch.padded`. All must have done the same number of rounds."""
    padded = each + each[-1:] * (width - len(each))
    first = padded[0]
    return first._replace(
        carry={name: np.concatenate([one.carry[name] for one in padded]) for name in first.carry},
        rows={name: np.concatenate([one.rows[name] for one in padded]) for name in first.rows},
        spent=Spent(*(sum(seconds) for seconds in zip(*(e.spent for e in padded), strict=True))),
        stopped=sum((one.stopped for one in padded), ()),
    )


class CheckpointMismatch(ValueError):
    """A checkpoint of another program."""


def name_arrays(carry: Carry) -> dict[str, Tree]:
    """Name the arrays of a Carry: `.state.models`."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(carry)}


def restore(shape: Carry, saved: dict[str, np.ndarray]) -> Carry:
    """Restore the Carry of a checkpoint. `shape`: the shapes of this program's Carry. Raises
    CheckpointMismatch if a name is missing on either side, or an array has another shape or
    type."""
    wanted = name_arrays(shape)
    for name in [*wanted, *saved]:
        here = wanted.get(name)
        there = saved.get(name)
        if here is None or there is None or (here.shape, here.dtype) != (there.shape, there.dtype):
            raise CheckpointMismatch(
                f"it does not fit this program: {name} is {_format(there)} but must be "
                f"{_format(here)}"
            )
    return jax.tree.unflatten(
        jax.tree.structure(shape), [jnp.asarray(saved[name]) for name in wanted]
    )


def _format(array: Tree) -> str:
    return "missing" if array is None else f"{array.dtype}{list(array.shape)}"


def check_rows(saved: Rows, new: Rows) -> None:
    """Raise CheckpointMismatch if a checkpoint's history has other quantities, or other shapes of
    them, than this program's."""
    if {name: a.shape[2:] for name, a in saved.items()} != {
        name: a.shape[2:] for name, a in new.items()
    }:
        raise CheckpointMismatch("its history has other quantities than this program's")


# Seconds that a chunk may take, roughly
CHUNK_SECONDS = 2.0
# An evaluation of less than these seconds is timed several times, and the least time counts: one
# may be mostly noise
CHEAP_EVALUATION_SECONDS = 0.05
CHEAP_EVALUATION_REPEATS = 5
Out = TypeVar("Out")


class ChunkTimer:
    """Times chunks of rounds, and adds the time to that of earlier starts: of evaluations, and the
    rest, which is training."""

    def __init__(self, total: float = 0.0, evaluation: float = 0.0) -> None:
        self.total, self.evaluation = total, evaluation
        self.per_round: float | None = None

    def time(self, rounds: int, f: Callable[..., Out], *args: object) -> Out:
        """Call f, a chunk of this number of rounds, and add its time to the total."""
        begin = time.perf_counter()
        result = jax.block_until_ready(f(*args))
        spent = time.perf_counter() - begin
        self.total += spent
        if rounds:
            self.per_round = spent / rounds
        return result

    def price(self, f: Callable[..., Out], *args: object) -> Out:
        """Call f, an evaluation: once to warm up, then timed."""
        result = jax.block_until_ready(f(*args))
        prices: list[float] = []
        # All processes repeat as often as process 0, as an evaluation needs all of them
        while not prices or distributed.agree(
            len(prices) < CHEAP_EVALUATION_REPEATS and prices[-1] < CHEAP_EVALUATION_SECONDS
        ):
            begin = time.perf_counter()
            result = jax.block_until_ready(f(*args))
            prices.append(time.perf_counter() - begin)
        self.evaluation = self.total = min(prices)
        return result

    def rounds_ahead(self) -> int:
        """Return the number of rounds of the next chunk; a program on the device cannot be
        interrupted."""
        if self.per_round is None:
            return 1
        return max(1, int(CHUNK_SECONDS / max(self.per_round, 1e-6)))

    def split(self, evaluations: int) -> tuple[float, float]:
        """Return (seconds of training, seconds of evaluation)."""
        evaluate = min(self.evaluation * evaluations, self.total)
        return self.total - evaluate, evaluate
