"""Loss and gradient of one client, on a mini-batch or on all of its samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from cfljax import keys
from cfljax.federation.gather import client_rows, samples
from cfljax.lazy import jax, jnp
from cfljax.local.data import MAX_TILE, take
from cfljax.local.schedule import StepSamples, Work, batch_size
from cfljax.local.side_by_side import take_step
from cfljax.types import Array, Federation, Model, Plan, Tree

MAX_LAID_OUT = 1 << 19
"""The most numbers of a client's samples, each counted as often as a step sees it, that are laid out before the steps."""


Extra = Callable[[Tree, "Samples", "Array | None"], Array]
"""(parameters, samples, the key of a step) -> f32[B] what is added to the loss of each sample."""


class Samples(NamedTuple):
    """Samples of one client, padded to B."""

    x: Array  # f32[B, ...]: what the network gets
    y: Array  # i32[B]: the labels
    mask: Array  # bool[B]: False for padding
    weight: Array | None = None  # f32[B]: the factor of each sample's loss; None: all factors are 1


class Gradient(NamedTuple):
    """The loss of a batch, and the gradient by the parameters."""

    loss: Array  # f32[]: the mean over the samples, without the model's penalty and what a method adds
    samples: Array  # f32[]: the number of samples in the batch, padding left out
    grads: Tree  # The gradient of the mean loss (of the summed loss with `summed`) plus the gradient of the model's penalty


def gather_batch(federation: Federation, client: Array, positions: Array, mask: Array, weights: Array | None = None) -> Samples:
    """Gather a client's training samples at the positions i32[B] of its list. `weights` f32[N]: one per sample of the list."""
    x, y = take(federation, federation.train, client, positions, mask)
    return Samples(x, y, mask, None if weights is None else weights[positions])


def lays_out(plan: Plan, federation: Federation, work: Work) -> bool:
    """Return whether the samples of all of a client's steps on mini-batches are laid out in order, once: on a TPU, where gathering
    a batch from the pool takes several kernels (a GPU needs one), if they are few numbers."""
    if work.batch is None or plan.sequential or plan.on_cpu or plan.asks_host:
        return False
    samples = work.most_steps(federation.train.longest) * batch_size(federation, work)
    return samples * math.prod(federation.sample_shape) <= MAX_LAID_OUT and federation.pool.table is None


def make_batches(
    federation: Federation, client: Array, weights: Array | None, every: StepSamples | None, in_lines: bool
) -> Callable[[StepSamples, Array], Samples]:
    """Return the function (samples of a step, its index i32[]) -> its batch. `every`: the samples of all steps; None: unknown
    beforehand. `in_lines`: whether batches are laid out at once, not only their positions."""
    if every is None:
        return lambda seen, _: gather_batch(federation, client, seen.positions, seen.mask, weights)
    batch = gather_batch(federation, client, every.positions.reshape(-1), every.mask.reshape(-1), weights)
    batches = jax.tree.map(lambda each: each.reshape(*every.mask.shape, *each.shape[1:]), batch)
    if in_lines:  # as lines of numbers, which are slices of one piece
        batches = batches._replace(x=batches.x.reshape(*every.mask.shape, -1))
        whole = lambda some: some._replace(x=some.x.reshape(-1, *batch.x.shape[1:]))  # noqa: E731
        return lambda _, number: whole(take_step(batches, number))
    batches = batches._replace(x=client_rows(federation.train, client, every.positions))

    def found(_: StepSamples, number: Array) -> Samples:
        some = take_step(batches, number)
        return some._replace(x=samples(federation, client, some.x, some.mask)[0])

    return found


def batch_gradient(
    model: Model,
    params: Tree,
    batch: Samples,
    key: Array | None,
    count: Array | None = None,
    summed: bool = False,
    extra: Extra | None = None,
) -> Gradient:
    """Compute loss and gradient on a batch. The mean is over the samples of the mask; `count` i32[] is their number, if the caller
    knows it. `summed`: the gradient of the summed loss. The model's penalty is added once in both cases. `extra`: as for steps."""
    count = (jnp.sum(batch.mask) if count is None else count).astype(jnp.float32)
    divisor = jnp.maximum(count, 1.0)

    def divided(params: Tree) -> tuple[Array, Array]:
        whole, loss = loss_sum(model, params, batch, key, extra)
        return whole if summed else whole / divisor, loss  # the samples' losses are divided, not all numbers of the gradient

    grads, loss = jax.grad(divided, has_aux=True)(params)
    return _build_gradient(model, params, loss, grads, count, divide=False)


def whole_batch(federation: Federation, client: Array, weights: Array | None = None, most: int = MAX_TILE) -> Samples | None:
    """Return all training samples of a client at once, or None if the largest client has more than `most` samples."""
    longest = federation.train.longest
    if longest > most:
        return None
    positions = jnp.arange(longest)
    return gather_batch(federation, client, positions, positions < federation.train.count[client], weights)


def full_gradient(
    model: Model,
    federation: Federation,
    client: Array,
    params: Tree,
    whole: Samples | None,
    key: Array | None = None,
    summed: bool = False,
    weights: Array | None = None,
    extra: Extra | None = None,
) -> Gradient:
    """Compute loss and gradient on all training samples of a client. `whole` is the result of `whole_batch`; if it is None, the
    samples are taken tile by tile, and the client's number of samples determines the number of tiles."""
    if whole is not None:
        return batch_gradient(model, params, whole, key, summed=summed, extra=extra)
    count = federation.train.count[client]

    def tile(i: Array, total: Tree) -> Tree:
        positions = i * MAX_TILE + jnp.arange(MAX_TILE)
        batch = gather_batch(federation, client, positions, positions < count, weights)
        here = None if key is None else keys.fold(key, "tile", i)
        (_, loss), grads = jax.value_and_grad(loss_sum, 1, has_aux=True)(model, params, batch, here, extra)
        return jax.tree.map(jnp.add, total, (loss, grads))

    zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    loss, grads = jax.lax.fori_loop(0, -(-count // MAX_TILE), tile, zero)
    return _build_gradient(model, params, loss, grads, count.astype(jnp.float32), divide=not summed)


def loss_sum(model: Model, params: Tree, batch: Samples, key: Array | None, extra: Extra | None = None) -> tuple[Array, Array]:
    """Compute the weighted sum of the samples' losses with and without `extra`, f32[] each."""
    mask = (batch.mask,) if model.statistics and key is not None else ()
    losses = model.loss(model.forward(params, batch.x, key, *mask), batch.y)

    def total(losses: Array) -> Array:
        if batch.weight is not None:
            losses = batch.weight * losses
        return jnp.sum(jnp.where(batch.mask, losses, 0.0))

    loss = total(losses)
    return loss if extra is None else loss + total(extra(params, batch, key)), loss


def _build_gradient(model: Model, params: Tree, loss: Array, grads: Tree, count: Array, divide: bool) -> Gradient:
    """Build the result from the summed loss f32[], the gradients, and the number of samples f32[], by which they may be divided."""
    divisor = jnp.maximum(count, 1.0)
    if divide:
        grads = jax.tree.map(lambda g: g / divisor, grads)
    if model.penalty is not None:
        grads = jax.tree.map(jnp.add, grads, jax.grad(model.penalty)(params))
    return Gradient(loss / divisor, count, grads)
