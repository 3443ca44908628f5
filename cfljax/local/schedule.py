"""Which of a client's samples are visited when: its epochs and steps. The trip counts are data, so a client pays for its own
samples only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import shuffle
from cfljax.types import Array, Federation, Jobs

SHUFFLED = 1 << 17
"""Numbers up to which all of a client's epochs are shuffled at once."""


class Work(NamedTuple):
    """How much a client trains in a round: static."""

    epochs: int | None
    """Passes over its data …"""
    steps: int | Array | None
    """… or this number of optimiser steps of the same stream of batches."""
    batch: int | None
    """Samples per step; None: all of them, and an epoch is one step."""
    one_vector: bool = False
    """One step whose buffer is all that is sent: the update is −lr times it."""
    summed: bool = False
    """A step goes along the gradient of a batch's summed loss, not of its mean."""


class Task(NamedTuple):
    """One participant's share of Jobs."""

    key: Array
    client: Array
    mask: Array
    work: Array
    start: Array
    """f32[d]."""
    anchor: Array | None
    velocity: Array | None
    weights: Array | None = None
    """f32[N] of its samples' losses; None: all 1."""


class Course(NamedTuple):
    """How far one participant trains: the same for every way of training."""

    samples: Array
    """i32[] that it has, 0 where it has nothing to do."""
    total: Array
    """i32[] its steps."""
    per_epoch: Array
    """i32[] steps that see all of its samples once."""
    visited: Array
    """f32[] samples that all steps see, at least 1."""
    epochs: Array | None
    """key[epochs] that their shuffles are drawn from; None where work is not counted in epochs of mini-batches."""


class Orders(NamedTuple):
    """The shuffles of a client's epochs, laid out by whole batches."""

    batch: int
    draw: Callable[[Array], Array]
    """i32[] number of the epoch -> i32[whole batches]: a shuffle of 0 … count − 1, then filler."""
    all: Array | None
    """i32[epochs, whole batches] where they are made beforehand, all sorted in one go: for a small client about as fast as one."""


class StepSamples(NamedTuple):
    """The samples of a step."""

    positions: Array
    """i32[B] of the client's list."""
    mask: Array
    """bool[B]."""
    samples: Array
    """i32[] how many samples these are: the sum of the mask, which would be a reduction in every step."""


Carry = TypeVar("Carry")
Visit = Callable[[Carry, StepSamples | None, Array], Carry]
"""(carry, the samples of the step, None for all of the client's, i32[] number of the step) -> carry."""


def train_steps(federation: Federation, task: Task | Jobs, work: Work) -> Array:
    """i32[] the optimiser steps that this client does: none when masked or without data, at least one as a straggler; i32[S] of
    the clients of all jobs."""
    count = federation.train.count[task.client]
    full: int | Array
    if work.steps is not None:
        full = work.steps
    else:
        assert work.epochs is not None
        full = work.epochs if work.batch is None else -(-count // batch_of(federation, work)) * work.epochs
    wanted = jnp.maximum(1, jnp.ceil(task.work * full - 1e-3)).astype(jnp.int32)
    return jnp.where(task.mask & (count > 0), wanted, 0)


def batch_of(federation: Federation, work: Work) -> int:
    """Samples per step: no more than the largest client has."""
    assert work.batch is not None
    return min(work.batch, federation.train.longest)


def course_of(federation: Federation, task: Task, work: Work) -> Course:
    """The course of a task, for `follow`."""
    total = train_steps(federation, task, work)
    count = jnp.where(total > 0, federation.train.count[task.client], 0)
    if work.batch is None:
        return Course(count, total, jnp.int32(1), _at_least_one(total * count), None)
    batch = batch_of(federation, work)
    per_epoch = (count + batch - 1) // batch
    whole, rest = jnp.divmod(total, jnp.maximum(per_epoch, 1))
    visited = _at_least_one(whole * count + jnp.minimum(rest * batch, count))
    epochs = None if work.epochs is None else keys.fold_in(keys.fold(task.key, "epoch"), jnp.arange(work.epochs))
    return Course(count, total, per_epoch, visited, epochs)


def orders_of(
    federation: Federation, task: Task, course: Course, work: Work, sequential: bool, longest: int, rungs: tuple[int, ...]
) -> Orders | None:
    """The shuffles of a client of at most `longest` samples; None where a step sees all of them."""
    if work.batch is None:
        return None
    batch = batch_of(federation, work)
    sort = lambda key: shuffle(key, course.samples, longest, batch, sequential, rungs)  # noqa: E731
    at_once = course.epochs is not None and course.epochs.shape[0] * longest <= SHUFFLED
    return Orders(batch, lambda number: sort(keys.fold(task.key, "epoch", number)), sort(course.epochs) if at_once else None)


def follow(course: Course, orders: Orders | None, visit: Visit[Carry], begin: Carry) -> Carry:
    """`begin` after all the client's steps: whole batches, or epochs of reshuffled batches, the last one short, cut after the
    client's number of steps."""
    if orders is None:
        return jax.lax.fori_loop(0, course.total, lambda i, carry: visit(carry, None, i), begin)
    batch, count, total, per_epoch = orders.batch, course.samples, course.total, course.per_epoch

    def step(line: Array, start: Array, in_epoch: Array, number: Array, carry: Carry) -> Carry:
        """The step `number`, whose epoch is laid out from `start` on the line."""
        left = count - in_epoch * batch
        positions = jax.lax.dynamic_slice(line, (start + in_epoch * batch,), (batch,))
        return visit(carry, StepSamples(positions, jnp.arange(batch) < left, jnp.minimum(left, batch)), number)

    def epoch(at: tuple[Carry, Array, Array]) -> tuple[Carry, Array, Array]:
        carry, number, done = at
        order, steps = orders.draw(number), jnp.minimum(per_epoch, total - done)
        step_of_epoch = lambda i, carry: step(order, jnp.int32(0), i, done + i, carry)  # noqa: E731
        return jax.lax.fori_loop(0, steps, step_of_epoch, carry), number + 1, done + steps

    if orders.all is None:
        return jax.lax.while_loop(lambda at: at[2] < total, epoch, (begin, jnp.int32(0), jnp.int32(0)))[0]
    width, line = orders.all.shape[1], orders.all.reshape(-1)

    def step_of_all(number: Array, carry: Carry) -> Carry:
        before = jax.lax.div(number, per_epoch)
        return step(line, before * width, number - before * per_epoch, number, carry)

    # one loop in place of two: where epochs are short, the outer one would cost as much as a step
    return jax.lax.fori_loop(0, total, step_of_all, begin)


def _at_least_one(samples: Array) -> Array:
    return jnp.maximum(samples, 1).astype(jnp.float32)
