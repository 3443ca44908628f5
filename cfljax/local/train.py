"""One client's local training: the loops over its epochs and steps. The trip counts are data, so a client pays for its own
samples only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import shuffle, take
from cfljax.local.gradients import Gradient, batch_gradient, full_gradient, whole_batch
from cfljax.local.optimiser import StepRule
from cfljax.types import Federation, Hyper, Model, Updates


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


class Progress(NamedTuple):
    """What the loops carry."""

    params: Any
    optimiser: Any
    loss: jax.Array
    """f32[] sum over the samples visited."""
    seen: jax.Array
    """f32[] how many samples that were."""


Step = Callable[[Progress, Callable[[Any], Gradient]], Progress]
"""Takes one optimiser step along the gradient that the function computes at the current parameters."""


def train(model: Model, federation: Federation, task: Task, rule: StepRule, hyper: Hyper, work: Work, sequential: bool) -> Updates:
    """Local training of one client from its start model."""
    params = model.unravel(task.start)
    velocity = None if task.velocity is None else model.unravel(task.velocity)
    begin = Progress(params, rule.init(params, velocity), jnp.float32(0), jnp.float32(0))
    step = _stepper(rule, hyper, params if task.anchor is None else model.unravel(task.anchor))
    loop = _full_batch if work.batch is None else _mini_batches
    end, total = loop(model, federation, task, step, begin, work, sequential)
    delta = jnp.where(total > 0, model.ravel(end.params) - task.start, 0.0)
    buffers = None if task.velocity is None else model.ravel(end.optimiser)
    return Updates(delta, end.loss / jnp.maximum(end.seen, 1), total, buffers)


def _stepper(rule: StepRule, hyper: Hyper, anchor: Any) -> Step:
    def step(progress: Progress, gradient: Callable[[Any], Gradient]) -> Progress:
        loss, count, grads = gradient(progress.params)
        if "loss_sum" in hyper:  # the batch's summed loss in place of its mean
            grads = jax.tree.map(lambda g: g * count, grads)
        if "mu" in hyper:  # FedProx: the gradient of mu/2 · ‖w − anchor‖²
            grads = jax.tree.map(lambda g, w, a: g + hyper["mu"] * (w - a), grads, progress.params, anchor)
        if "weight_decay" in hyper:
            grads = jax.tree.map(lambda g, w: g + hyper["weight_decay"] * w, grads, progress.params)
        params, state = rule.step(grads, progress.optimiser, progress.params)
        return Progress(params, state, progress.loss + loss * count, progress.seen + count)

    return step


def _steps(federation: Federation, task: Task, full: int | jax.Array) -> jax.Array:
    """i32[] the steps that this client does of `full`: none when masked or without data, at least one as a straggler."""
    wanted = jnp.maximum(1, jnp.ceil(task.work * full - 1e-3)).astype(jnp.int32)
    return jnp.where(task.mask & (federation.train.count[task.client] > 0), wanted, 0)


def _mini_batches(
    model: Model, federation: Federation, task: Task, step: Step, begin: Progress, work: Work, sequential: bool
) -> tuple[Progress, jax.Array]:
    """Epochs of reshuffled batches, the last one short, cut after the client's number of steps."""
    assert work.batch is not None
    longest, count = federation.train.longest, federation.train.count[task.client]
    batch = min(work.batch, longest)
    per_epoch = -(-count // batch)
    total = _steps(federation, task, per_epoch * work.epochs if work.steps is None else work.steps)

    def epoch(carry: tuple[Progress, jax.Array, jax.Array]) -> tuple[Progress, jax.Array, jax.Array]:
        progress, number, done = carry
        order = shuffle(keys.fold(task.key, "epoch", number), count, longest, batch, sequential)

        def one(b: jax.Array, progress: Progress) -> Progress:
            mask = b * batch + jnp.arange(batch) < count
            positions = jax.lax.dynamic_slice(order, (b * batch,), (batch,))
            samples = (*take(federation, federation.train, task.client, positions, mask), mask)
            key = keys.fold(task.key, "step", done + b)
            return step(progress, lambda params: batch_gradient(model, params, samples, key))

        now = jnp.minimum(per_epoch, total - done)
        return jax.lax.fori_loop(0, now, one, progress), number + 1, done + now

    end, _, _ = jax.lax.while_loop(lambda carry: carry[2] < total, epoch, (begin, jnp.int32(0), jnp.int32(0)))
    return end, total


def _full_batch(
    model: Model, federation: Federation, task: Task, step: Step, begin: Progress, work: Work, _: bool
) -> tuple[Progress, jax.Array]:
    """Steps on the mean loss over all of a client's samples."""
    total = _steps(federation, task, work.epochs if work.steps is None else work.steps)  # type: ignore[arg-type]
    whole = whole_batch(federation, task.client)

    def one(i: jax.Array, progress: Progress) -> Progress:
        key = keys.fold(task.key, "step", i)
        return step(progress, lambda params: full_gradient(model, federation, task.client, params, whole, key))

    return jax.lax.fori_loop(0, total, one, begin), total
