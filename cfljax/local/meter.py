"""Counting the local steps of a round while it is traced, for the simulated clock (`engine.wall`):
how many steps each client does, in all trainings of a method together. If nothing counts, nothing
is computed.

A training is counted where a method asks for it (`Solver.fit`, `Solver.train`, `train_and_mix`),
not where it is carried out, so that plans do not matter. A method that trains in a branch uses
`branch` instead of `jax.lax.cond`."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import TypeVar

from cfljax.lazy import jax, jnp
from cfljax.local.schedule import Work, train_steps
from cfljax.types import Array, Federation, Jobs, Traffic

Out = TypeVar("Out")


class Meter:
    """The counts so far."""

    def __init__(self, clients: int):
        # f32[C]: the local steps of each client
        self.steps = jnp.zeros(clients)
        # What clients that are no participants send before the round, to be clustered
        self.pre_round = Traffic(*(jnp.int32(0) for _ in Traffic._fields))
        # i32[]: how many clients send something before the round
        self.senders = jnp.int32(0)


_open: contextvars.ContextVar[Meter | None] = contextvars.ContextVar("meter", default=None)


@contextlib.contextmanager
def _use_meter(meter: Meter | None) -> Iterator[None]:
    token = _open.set(meter)
    try:
        yield
    finally:
        _open.reset(token)


@contextlib.contextmanager
def meter_steps(clients: int) -> Iterator[Meter]:
    """Count the steps of all trainings."""
    with _use_meter(meter := Meter(clients)):
        yield meter


@contextlib.contextmanager
def count_steps(federation: Federation, jobs: Jobs, work: Work) -> Iterator[None]:
    """Mark a training: these jobs are done, and trainings within it are parts of them and not
    counted again."""
    if (meter := _open.get()) is not None:
        meter.steps = meter.steps.at[jobs.client].add(
            train_steps(federation, jobs, work).astype(jnp.float32)
        )
    with _use_meter(None):
        yield


def count_pre_round_traffic(
    clients: Array,
    vectors: int = 1,
    models_down: Array | int = 0,
    floats_up: Array | int = 0,
) -> None:
    """Add to this round's traffic what clients that are no participants send before it, to be
    clustered.

    Args:
      clients: i32[] their number.
      vectors: How many vectors of the model's size each of them receives, and sends.
      models_down: How many models all of them together receive besides.
      floats_up: How many numbers all of them together send besides.
    """
    if (meter := _open.get()) is not None:
        # In the order of the fields: vectors down, vectors up, floats down, floats up
        more = (vectors * clients + models_down, vectors * clients, 0, floats_up)
        meter.pre_round = Traffic(
            *(
                old + jnp.asarray(new, jnp.int32)
                for old, new in zip(meter.pre_round, more, strict=True)
            )
        )
        meter.senders = meter.senders + clients


def branch(which: Array, one: Callable[[], Out], other: Callable[[], Out]) -> Out:
    """Do what `jax.lax.cond` does, with branches that may train."""
    if (meter := _open.get()) is None:
        return jax.lax.cond(which, one, other)

    # What a branch counts exists in its trace alone: it has to be returned, and added outside

    def metered(f: Callable[[], Out]) -> Callable[[], tuple[Out, tuple[Array, Traffic, Array]]]:
        def call() -> tuple[Out, tuple[Array, Traffic, Array]]:
            with meter_steps(meter.steps.shape[0]) as inside:
                out = f()
            return out, (inside.steps, inside.pre_round, inside.senders)

        return call

    out, (steps, pre_round, senders) = jax.lax.cond(which, metered(one), metered(other))
    meter.steps = meter.steps + steps
    meter.senders = meter.senders + senders
    meter.pre_round = Traffic(*map(jnp.add, meter.pre_round, pre_round))
    return out
