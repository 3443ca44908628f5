"""Loss and gradient of one client, on a mini-batch or on all of its samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import TILE, take
from cfljax.types import Array, Federation, Model, Plan, Tree

LAID_OUT = 1 << 18
"""The most numbers of a client whose samples are laid out before its steps."""


class Samples(NamedTuple):
    """Samples of one client, padded to B."""

    x: Array
    """f32[B, ...]: what the network gets."""
    y: Array
    """i32[B]: the labels."""
    mask: Array
    """bool[B]: False for padding."""
    weight: Array | None = None
    """f32[B]: the factor of each sample's loss; None: all factors are 1."""


class Gradient(NamedTuple):
    """The loss of a batch, and the gradient by the parameters."""

    loss: Array
    """f32[]: the mean over the samples, without the model's penalty."""
    samples: Array
    """f32[]: the number of samples in the batch, padding left out."""
    grads: Tree
    """The gradient of the mean loss (of the summed loss with `summed`) plus the gradient of the model's penalty."""


def batch_of_client(federation: Federation, client: Array, positions: Array, mask: Array, weights: Array | None = None) -> Samples:
    """The training samples of a client at the positions i32[B] of its list. `weights` f32[N]: one per sample of the list."""
    x, y = take(federation, federation.train, client, positions, mask)
    return Samples(x, y, mask, None if weights is None else weights[positions])


def lays_out(plan: Plan, federation: Federation, batch: int | None) -> bool:
    """Whether the samples of each client are laid out once, before its steps on mini-batches: on a TPU, where to find a batch
    in the pool takes as many kernels as the rest of a step (a GPU has one for it), if clients have few numbers, and no table."""
    numbers = federation.train.longest * math.prod(federation.sample_shape)
    few = numbers <= LAID_OUT and federation.pool.table is None
    tpu = not plan.on_cpu and not plan.asks_host
    return tpu and few and not plan.sequential and batch is not None


def laid_out(federation: Federation, client: Array, weights: Array | None = None) -> Array:
    """f32[N, inputs + labels + 1]: all training samples of a client in lines, each with its label, or all of its labels, and its
    weight, so that a step finds all of it at once."""
    places = jnp.arange(federation.train.longest, dtype=jnp.int32)
    x, y = take(federation, federation.train, client, places, places < federation.train.count[client])
    factor = jnp.ones(places.shape) if weights is None else weights[: places.shape[0]]
    parts = (x, y.astype(jnp.float32), factor)
    return jnp.concatenate([each.reshape(places.shape[0], -1) for each in parts], axis=1)


def batch_of_lines(federation: Federation, lines: Array, positions: Array, mask: Array, weighted: bool) -> Samples:
    """The same as `batch_of_client`, from the client's samples as `laid_out` has them. `weighted`: whether they have weights."""
    inputs = math.prod(federation.sample_shape)
    seen = jnp.where(mask[:, None], jnp.take(lines, positions, axis=0, mode="clip"), 0.0)
    y = seen[:, inputs:-1].astype(jnp.int32)
    x = seen[:, :inputs].reshape(-1, *federation.sample_shape)
    labels = y if federation.pool.y.ndim > 1 else y[:, 0]
    return Samples(x, labels, mask, seen[:, -1] if weighted else None)


def batches_of(federation: Federation, client: Array, weights: Array | None, in_lines: bool) -> Callable[[Array, Array], Samples]:
    """The function (positions i32[B], mask bool[B]) -> the client's samples at these positions. `in_lines`: whether all are laid
    out first."""
    if not in_lines:
        return lambda positions, mask: batch_of_client(federation, client, positions, mask, weights)
    lines = laid_out(federation, client, weights)
    return lambda positions, mask: batch_of_lines(federation, lines, positions, mask, weights is not None)


def batch_gradient(
    model: Model, params: Tree, batch: Samples, key: Array | None, count: Array | None = None, summed: bool = False
) -> Gradient:
    """Loss and gradient on a batch. The mean is over the samples that the mask shows; `count` i32[] is their number, if the caller
    knows it. `summed`: the gradient is that of the summed loss. The model's penalty is added once in both cases."""
    count = (jnp.sum(batch.mask) if count is None else count).astype(jnp.float32)
    loss, grads = jax.value_and_grad(loss_sum, 1)(model, params, batch, key)
    return _gradient(model, params, loss, grads, count, summed)


def whole_batch(federation: Federation, client: Array, weights: Array | None = None) -> Samples | None:
    """All training samples of a client at once, or None if the largest client has more than TILE samples."""
    longest = federation.train.longest
    if longest > TILE:
        return None
    positions = jnp.arange(longest)
    return batch_of_client(federation, client, positions, positions < federation.train.count[client], weights)


def full_gradient(
    model: Model,
    federation: Federation,
    client: Array,
    params: Tree,
    whole: Samples | None,
    key: Array | None = None,
    summed: bool = False,
    weights: Array | None = None,
) -> Gradient:
    """Loss and gradient on all training samples of a client. `whole` is the result of `whole_batch`; if it is None, the samples are
    taken tile by tile, and the client's number of samples decides the number of tiles."""
    if whole is not None:
        return batch_gradient(model, params, whole, key, summed=summed)
    count = federation.train.count[client]

    def tile(i: Array, total: Tree) -> Tree:
        positions = i * TILE + jnp.arange(TILE)
        batch = batch_of_client(federation, client, positions, positions < count, weights)
        part = jax.value_and_grad(loss_sum, 1)(model, params, batch, None if key is None else keys.fold(key, "tile", i))
        return jax.tree.map(jnp.add, total, part)

    zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    loss, grads = jax.lax.fori_loop(0, -(-count // TILE), tile, zero)
    return _gradient(model, params, loss, grads, count.astype(jnp.float32), summed)


def loss_sum(model: Model, params: Tree, batch: Samples, key: Array | None) -> Array:
    """f32[]: the weighted sum of the samples' losses."""
    losses = model.loss(model.forward(params, batch.x, key), batch.y)
    if batch.weight is not None:
        losses = batch.weight * losses
    return jnp.sum(jnp.where(batch.mask, losses, 0.0))


def _gradient(model: Model, params: Tree, loss: Array, grads: Tree, count: Array, summed: bool) -> Gradient:
    """The result, from the summed loss f32[], its gradients, and the number f32[] of samples."""
    divisor = jnp.maximum(count, 1.0)
    if not summed:
        grads = jax.tree.map(lambda g: g / divisor, grads)
    if model.penalty is not None:
        grads = jax.tree.map(jnp.add, grads, jax.grad(model.penalty)(params))
    return Gradient(loss / divisor, count, grads)
