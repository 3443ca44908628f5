"""Which of a client's samples are visited when: its epochs and steps. The trip counts are data, so a client pays for its own
samples only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import shuffle
from cfljax.types import Federation

SHUFFLED = 1 << 17
"""Numbers up to which all of a client's epochs are shuffled at once."""


class Work(NamedTuple):
    """How much a client does in a round: static."""

    epochs: int | None
    """Passes over its data …"""
    steps: int | jax.Array | None
    """… or so many optimiser steps of the same stream of batches."""
    batch: int | None
    """Samples per step; None: all of them, and an epoch is one step."""


class Task(NamedTuple):
    """One participant's share of Jobs."""

    key: jax.Array
    client: jax.Array
    mask: jax.Array
    work: jax.Array
    start: jax.Array
    """f32[d]."""
    anchor: jax.Array | None
    velocity: jax.Array | None
    orders: jax.Array | None = None
    """i32[epochs, whole batches]: the shuffles of all the client's epochs, where they are made beforehand (`all_epochs`)."""


class Seen(NamedTuple):
    """The samples of a step."""

    positions: jax.Array
    """i32[B] of the client's list."""
    mask: jax.Array
    """bool[B]."""
    there: jax.Array
    """i32[] how many there are: the sum of the mask, which would be a reduction in every step."""


Visit = Callable[..., Any]
"""(carry, Seen or None for all of the client's samples, i32[] number of the step) -> carry."""
Shuffle = Callable[[jax.Array], jax.Array]
"""key -> i32[whole batches]: a shuffle of 0 … count − 1, then filler."""


def train_steps(federation: Federation, task: Task, work: Work) -> jax.Array:
    """i32[] the optimiser steps that this client does: none when masked or without data, at least one as a straggler."""
    count = federation.train.count[task.client]
    full: Any = work.steps
    if full is None:
        full = work.epochs if work.batch is None else -(-count // batch_of(federation, work)) * work.epochs
    wanted = jnp.maximum(1, jnp.ceil(task.work * full - 1e-3)).astype(jnp.int32)
    return jnp.where(task.mask & (count > 0), wanted, 0)


def batch_of(federation: Federation, work: Work) -> int:
    """Samples per step: no more than the largest client has."""
    assert work.batch is not None
    return min(work.batch, federation.train.longest)


def follow(
    federation: Federation, task: Task, work: Work, draw_order: Shuffle, visit: Visit, begin: Any
) -> tuple[Any, jax.Array, jax.Array]:
    """(`begin` after all the client's steps, how many there were, f32[] how many samples they visited, at least 1): whole batches,
    or epochs of reshuffled batches, the last one short, cut after the client's number of steps. `draw_order` is for a task without
    orders of its own."""
    total, count = train_steps(federation, task, work), federation.train.count[task.client]
    if work.batch is None:
        end = jax.lax.fori_loop(0, total, lambda i, carry: visit(carry, None, i), begin)
        return end, total, _at_least_one(total * count)
    batch = batch_of(federation, work)
    per_epoch, orders = -(-count // batch), task.orders

    def step(line: jax.Array, start: jax.Array, in_epoch: jax.Array, number: jax.Array, carry: Any) -> Any:
        """The step `number`, whose epoch is laid out from `start` on the line."""
        there = count - in_epoch * batch
        positions = jax.lax.dynamic_slice(line, (start + in_epoch * batch,), (batch,))
        return visit(carry, Seen(positions, jnp.arange(batch) < there, jnp.minimum(there, batch)), number)

    def epoch(at: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
        carry, number, done = at
        order, steps = draw_order(_epoch(task, number)), jnp.minimum(per_epoch, total - done)
        step_of_epoch = lambda i, carry: step(order, jnp.int32(0), i, done + i, carry)  # noqa: E731
        return jax.lax.fori_loop(0, steps, step_of_epoch, carry), number + 1, done + steps

    if orders is None:
        end, _, _ = jax.lax.while_loop(lambda at: at[2] < total, epoch, (begin, jnp.int32(0), jnp.int32(0)))
    else:  # one loop in place of two: where epochs are short, the outer one would cost as much as a step
        width, line = orders.shape[1], orders.reshape(-1)

        def step_of_all(number: jax.Array, carry: Any) -> Any:
            before = jax.lax.div(number, per_epoch)
            return step(line, before * width, number - before * per_epoch, number, carry)

        end = jax.lax.fori_loop(0, total, step_of_all, begin)
    whole, rest = jnp.divmod(total, jnp.maximum(per_epoch, 1))
    return end, total, _at_least_one(whole * count + jnp.minimum(rest * batch, count))


def _at_least_one(samples: jax.Array) -> jax.Array:
    return jnp.maximum(samples, 1).astype(jnp.float32)


def all_epochs(
    federation: Federation, task: Task, work: Work, one_by_one: bool, longest: int, rungs: tuple[int, ...]
) -> jax.Array | None:
    """i32[epochs, whole batches]: the shuffles of all epochs of a client of at most `longest` samples, all sorted in one go,
    which for a small client is about as fast as one. None where they exceed SHUFFLED numbers, or work is not counted in epochs."""
    if work.epochs is None or work.batch is None or work.epochs * longest > SHUFFLED:
        return None
    each = jax.vmap(lambda number: _epoch(task, number))(jnp.arange(work.epochs))
    count = jnp.where(task.mask, federation.train.count[task.client], 0)
    return shuffle(each, count, longest, batch_of(federation, work), one_by_one, rungs)


def _epoch(task: Task, number: jax.Array) -> jax.Array:
    return keys.fold(task.key, "epoch", number)
