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
        self.steps = jnp.zeros(clients)
        """f32[C]: the local steps of each client."""
        self.beside = Traffic(*(jnp.int32(0) for _ in Traffic._fields))
        """The part of the traffic that is not the participants': what clients send before the
        round, to be clustered."""
        self.senders = jnp.int32(0)
        """i32[]: how many clients send that."""


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


def count_beside(
    clients: Array,
    vectors: int = 1,
    models_down: Array | int = 0,
    floats_up: Array | int = 0,
) -> None:
    """Add to this round's traffic a number of `clients` that send something besides the
    participants: each of them `vectors` down and up, all of them together `models_down` and
    `floats_up`."""
    if (meter := _open.get()) is not None:
        more = (vectors * clients + models_down, vectors * clients, 0, floats_up)
        meter.beside = Traffic(
            *(
                old + jnp.asarray(new, jnp.int32)
                for old, new in zip(meter.beside, more, strict=True)
            )
        )
        meter.senders = meter.senders + clients


def branch(which: Array, one: Callable[[], Out], other: Callable[[], Out]) -> Out:
    """`jax.lax.cond` whose branches may train."""
    if (meter := _open.get()) is None:
        return jax.lax.cond(which, one, other)

    def metered(f: Callable[[], Out]) -> Callable[[], tuple[Out, tuple[Array, Traffic, Array]]]:
        def call() -> tuple[Out, tuple[Array, Traffic, Array]]:
            with meter_steps(meter.steps.shape[0]) as inside:
                out = f()
            return out, (inside.steps, inside.beside, inside.senders)

        return call

    out, (steps, beside, senders) = jax.lax.cond(which, metered(one), metered(other))
    meter.steps, meter.senders = meter.steps + steps, meter.senders + senders
    meter.beside = Traffic(*map(jnp.add, meter.beside, beside))
    return out
