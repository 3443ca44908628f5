"""The local solver: what each participant does between receiving a model and sending its update.

One signature, `fit(key, federation, jobs, hyper) -> Updates`, whatever the execution plan. Each client runs its own number
of steps on its own samples: the result is that of the client trained alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import TILE, shuffle, take
from cfljax.local.optimiser import StepRule, from_optax, sgd
from cfljax.types import Federation, Hyper, Jobs, Model, Updates


class Work(NamedTuple):
    """How much a client does in a round: static."""

    epochs: int | None
    """Passes over its data …"""
    steps: int | None
    """… or so many optimiser steps of the same stream of batches."""
    batch: int | None
    """Samples per step; None: all of them."""


class Solver(NamedTuple):
    """Local computations that methods are made of."""

    fit: Callable[..., Updates]
    """(key, federation, jobs, hyper, work=None) -> Updates."""
    gradient: Callable[..., tuple[jax.Array, jax.Array]]
    """(federation, jobs) -> (f32[S, d], f32[S]): gradient of the mean loss on all local data, and that loss."""
    minibatch_gradient: Callable[..., tuple[jax.Array, jax.Array]]
    """(key, federation, jobs, batch) -> the same on one random mini-batch."""
    work: Work
    sequential: bool
    """Clients one after another (the fast way on a CPU), or all side by side (on an accelerator)."""


class _Progress(NamedTuple):
    """What the loop over a client's steps carries."""

    params: Any
    optimiser: Any
    loss: jax.Array
    """f32[] sum over the samples visited."""
    seen: jax.Array
    """f32[] how many samples that were."""


def make_solver(model: Model, work: Work, optimizer: tuple[str, dict[str, Any]] = ("sgd", {}), sequential: bool = True) -> Solver:
    """The solver for a model; everything here is static."""
    each = functools.partial(_each, sequential=sequential)

    def rule(hyper: Hyper) -> StepRule:
        name, arguments = optimizer
        return sgd(hyper) if name == "sgd" and not arguments else from_optax(name, arguments, hyper)

    def fit(key: jax.Array, federation: Federation, jobs: Jobs, hyper: Hyper, work: Work = work) -> Updates:
        def one(job: _Job) -> Updates:
            return _train(model, federation, job, rule(hyper), hyper, work, sequential)

        return each(one, _jobs(key, federation, jobs))

    def gradient(federation: Federation, jobs: Jobs) -> tuple[jax.Array, jax.Array]:
        def one(job: _Job) -> tuple[jax.Array, jax.Array]:
            return _full_gradient(model, federation, job)

        return each(one, _jobs(keys.root(0), federation, jobs))

    def minibatch_gradient(key: jax.Array, federation: Federation, jobs: Jobs, batch: int) -> tuple[jax.Array, jax.Array]:
        def one(job: _Job) -> tuple[jax.Array, jax.Array]:
            return _batch_gradient(model, federation, job, batch, sequential)

        return each(one, _jobs(key, federation, jobs))

    return Solver(fit, gradient, minibatch_gradient, work, sequential)


class _Job(NamedTuple):
    """One entry of Jobs, with what it needs."""

    key: jax.Array
    client: jax.Array
    mask: jax.Array
    work: jax.Array
    start: jax.Array
    which: jax.Array
    anchor: jax.Array | None
    anchor_of: jax.Array | None
    velocity: jax.Array | None


def _jobs(key: jax.Array, federation: Federation, jobs: Jobs) -> Callable[[jax.Array], _Job]:
    """Job number s, made when its turn comes: the start models are never copied per participant."""
    each_key = keys.fold_each(key, "client", federation.uid[jobs.client])

    def job(s: jax.Array) -> _Job:
        which = jobs.which[s]
        anchor_of = None if jobs.anchor_of is None else jobs.anchor_of[s]
        anchor = None if jobs.anchor is None else jobs.anchor[anchor_of]
        velocity = None if jobs.velocity is None else jobs.velocity[which]
        return _Job(each_key[s], jobs.client[s], jobs.mask[s], jobs.work[s], jobs.start[which], which, anchor, anchor_of, velocity)

    job.count = jobs.client.shape[0]  # type: ignore[attr-defined]
    return job


def _each(one: Callable[[_Job], Any], job: Callable[[jax.Array], _Job], sequential: bool) -> Any:
    """`one` over all jobs: in sequence (each pays for itself) or side by side."""
    numbers = jnp.arange(job.count)  # type: ignore[attr-defined]
    if sequential:
        return jax.lax.map(lambda s: one(job(s)), numbers)
    return jax.vmap(lambda s: one(job(s)))(numbers)


def _train(
    model: Model, federation: Federation, job: _Job, rule: StepRule, hyper: Hyper, work: Work, sequential: bool
) -> Updates:
    """One client's local training."""
    params = model.unravel(job.start)
    anchor = params if job.anchor is None else model.unravel(job.anchor)
    velocity = None if job.velocity is None else model.unravel(job.velocity)
    begin = _Progress(params, rule.init(params, velocity), jnp.float32(0), jnp.float32(0))
    step = functools.partial(_step, model, rule, hyper, anchor)
    if work.batch is None:
        total = _whole(job, federation, work.steps if work.steps is not None else work.epochs)
        end = _full_batch_steps(federation, job, model, step, begin, total)
    else:
        end, total = _mini_batch_steps(federation, job, step, begin, work, sequential)
    delta = jnp.where(total > 0, model.ravel(end.params) - job.start, 0.0)
    buffers = None if job.velocity is None else model.ravel(end.optimiser)
    return Updates(delta, end.loss / jnp.maximum(end.seen, 1), total, buffers)


def _whole(job: _Job, federation: Federation, steps: Any) -> jax.Array:
    """i32[] steps that this client does: none without data or when masked, at least one for a straggler."""
    wanted = jnp.maximum(1, jnp.ceil(job.work * steps - 1e-3)).astype(jnp.int32)
    return jnp.where(job.mask & (federation.train.count[job.client] > 0), wanted, 0)


def _step(model: Model, rule: StepRule, hyper: Hyper, anchor: Any, progress: _Progress, gradient: Callable[..., Any]) -> _Progress:
    """One optimiser step; `gradient(params) -> (mean loss, samples, grads)`."""
    loss, count, grads = gradient(progress.params)
    if "mu" in hyper:  # FedProx: the gradient of mu/2 · ‖w − anchor‖²
        grads = jax.tree.map(lambda g, w, a: g + hyper["mu"] * (w - a), grads, progress.params, anchor)
    if "weight_decay" in hyper:
        grads = jax.tree.map(lambda g, w: g + hyper["weight_decay"] * w, grads, progress.params)
    params, state = rule.step(grads, progress.optimiser, progress.params)
    return _Progress(params, state, progress.loss + loss * count, progress.seen + count)


def _loss_sum(model: Model, params: Any, x: jax.Array, y: jax.Array, mask: jax.Array, key: jax.Array | None) -> jax.Array:
    return jnp.sum(jnp.where(mask, model.loss(model.forward(params, x, key), y), 0.0))


def _batch_loss(model: Model, params: Any, x: jax.Array, y: jax.Array, mask: jax.Array, key: jax.Array | None) -> Any:
    """(objective, mean loss): the mean over the samples that are there, and the model's own penalty."""
    loss = _loss_sum(model, params, x, y, mask, key) / jnp.maximum(jnp.sum(mask), 1)
    return (loss if model.penalty is None else loss + model.penalty(params)), loss


def _mini_batch_steps(
    federation: Federation, job: _Job, step: Callable[..., _Progress], begin: _Progress, work: Work, sequential: bool
) -> tuple[_Progress, jax.Array]:
    """Epochs of reshuffled batches, the last one short, cut after the client's number of steps."""
    batch, count = min(work.batch or 1, federation.train.longest), federation.train.count[job.client]
    per_epoch = -(-count // batch)
    total = _whole(job, federation, work.steps if work.steps is not None else work.epochs * per_epoch)  # type: ignore[operator]
    model: Model = step.args[0]  # type: ignore[attr-defined]

    def epoch(carry: tuple[_Progress, jax.Array, jax.Array]) -> tuple[_Progress, jax.Array, jax.Array]:
        progress, number, done = carry
        order = shuffle(keys.fold(job.key, "epoch", number), count, federation.train.longest, batch, sequential)

        def one(b: jax.Array, progress: _Progress) -> _Progress:
            where = b * batch + jnp.arange(batch)
            mask = where < count
            x, y = take(federation, federation.train, job.client, jax.lax.dynamic_slice(order, (b * batch,), (batch,)), mask)
            key = keys.fold(job.key, "step", done + b)

            def gradient(params: Any) -> tuple[jax.Array, jax.Array, Any]:
                (_, loss), grads = jax.value_and_grad(_batch_loss, 1, has_aux=True)(model, params, x, y, mask, key)
                return loss, jnp.sum(mask).astype(jnp.float32), grads

            return step(progress, gradient)

        now = jnp.minimum(per_epoch, total - done)
        return jax.lax.fori_loop(0, now, one, progress), number + 1, done + now

    end, _, _ = jax.lax.while_loop(lambda c: c[2] < total, epoch, (begin, jnp.int32(0), jnp.int32(0)))
    return end, total


def _full_batch_steps(
    federation: Federation, job: _Job, model: Model, step: Callable[..., _Progress], begin: _Progress, total: jax.Array
) -> _Progress:
    """Steps on the mean loss over all of a client's samples."""
    whole = _whole_batch(federation, job)  # gathered once, when it fits in one tile

    def one(i: jax.Array, progress: _Progress) -> _Progress:
        key = keys.fold(job.key, "step", i)
        return step(progress, lambda params: _mean_gradient(model, federation, job, params, whole, key))

    return jax.lax.fori_loop(0, total, one, begin)


def _whole_batch(federation: Federation, job: _Job) -> tuple[jax.Array, jax.Array, jax.Array] | None:
    """(x, y, mask) of all samples of the client, or None when that is more than a tile."""
    longest = federation.train.longest
    if longest > TILE:
        return None
    where = jnp.arange(longest)
    mask = where < federation.train.count[job.client]
    return *take(federation, federation.train, job.client, where, mask), mask


def _mean_gradient(
    model: Model, federation: Federation, job: _Job, params: Any, whole: Any, key: jax.Array | None
) -> tuple[jax.Array, jax.Array, Any]:
    """(mean loss, samples, gradient of the mean loss + penalty) over all of the client's samples."""
    count = federation.train.count[job.client]
    total_loss = functools.partial(_loss_sum, model)
    if whole is not None:
        loss, grads = jax.value_and_grad(total_loss)(params, *whole, key)
    else:

        def tile(i: jax.Array, carry: Any) -> Any:
            where = i * TILE + jnp.arange(TILE)
            mask = where < count
            x, y = take(federation, federation.train, job.client, where, mask)
            part = jax.value_and_grad(total_loss)(params, x, y, mask, None if key is None else keys.fold(key, "tile", i))
            return jax.tree.map(jnp.add, carry, part)

        zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        loss, grads = jax.lax.fori_loop(0, -(-count // TILE), tile, zero)
    samples = jnp.maximum(count, 1).astype(jnp.float32)
    grads = jax.tree.map(lambda g: g / samples, grads)
    if model.penalty is not None:
        grads = jax.tree.map(jnp.add, grads, jax.grad(model.penalty)(params))
    return loss / samples, samples, grads


def _full_gradient(model: Model, federation: Federation, job: _Job) -> tuple[jax.Array, jax.Array]:
    loss, _, grads = _mean_gradient(model, federation, job, model.unravel(job.start), _whole_batch(federation, job), None)
    return jnp.where(job.mask, model.ravel(grads), 0.0), jnp.where(job.mask, loss, 0.0)


def _batch_gradient(model: Model, federation: Federation, job: _Job, batch: int, sequential: bool) -> tuple[jax.Array, jax.Array]:
    batch, count = min(batch, federation.train.longest), federation.train.count[job.client]
    order = shuffle(keys.fold(job.key, "epoch", 0), count, federation.train.longest, batch, sequential)[:batch]
    mask = (jnp.arange(batch) < count) & job.mask
    x, y = take(federation, federation.train, job.client, order, mask)
    params = model.unravel(job.start)
    (_, loss), grads = jax.value_and_grad(_batch_loss, 1, has_aux=True)(model, params, x, y, mask, keys.fold(job.key, "step", 0))
    return jnp.where(job.mask, model.ravel(grads), 0.0), jnp.where(job.mask, loss, 0.0)
