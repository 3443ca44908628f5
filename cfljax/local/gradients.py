"""Loss and gradient of one client, on a mini-batch or on all of its samples."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import TILE, take
from cfljax.types import Array, Federation, Model, Tree


class Samples(NamedTuple):
    """Samples of one client."""

    x: Array
    """f32[B, ...]."""
    y: Array
    """i32[B]."""
    mask: Array
    """bool[B]: False for padding."""
    weight: Array | None = None
    """f32[B]: by which the loss of each sample is multiplied; None: by 1."""


class Gradient(NamedTuple):
    """The loss of a batch and its gradient."""

    loss: Array
    """f32[]: mean over the samples."""
    samples: Array
    """f32[]: how many samples the batch has."""
    grads: Tree
    """The gradient of the mean loss, or of the summed loss, plus that of the model's penalty."""


def batch_of_client(federation: Federation, client: Array, positions: Array, mask: Array, weights: Array | None = None) -> Samples:
    """The training samples of a client at these positions of its list, i32[B]; weights f32[N] are those of its list."""
    x, y = take(federation, federation.train, client, positions, mask)
    return Samples(x, y, mask, None if weights is None else weights[positions])


def batch_gradient(
    model: Model, params: Tree, batch: Samples, key: Array | None, count: Array | None = None, summed: bool = False
) -> Gradient:
    """Over the samples of the batch: a short batch is averaged over its true size, which is `count` i32[] where the caller knows
    it. `summed`: the gradient of the sum of their losses. The model's penalty is counted once either way."""
    count = (jnp.sum(batch.mask) if count is None else count).astype(jnp.float32)
    loss, grads = jax.value_and_grad(_loss_sum, 1)(model, params, batch, key)
    return _gradient(model, params, loss, grads, count, summed)


def whole_batch(federation: Federation, client: Array, weights: Array | None = None) -> Samples | None:
    """All samples of a client at once, or None where clients may hold more than a tile."""
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
    """Over all samples of a client: `whole` from `whole_batch`, or tile by tile, as many tiles as the client has samples for."""
    if whole is not None:
        return batch_gradient(model, params, whole, key, summed=summed)
    count = federation.train.count[client]

    def tile(i: Array, total: Tree) -> Tree:
        positions = i * TILE + jnp.arange(TILE)
        batch = batch_of_client(federation, client, positions, positions < count, weights)
        part = jax.value_and_grad(_loss_sum, 1)(model, params, batch, None if key is None else keys.fold(key, "tile", i))
        return jax.tree.map(jnp.add, total, part)

    zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    loss, grads = jax.lax.fori_loop(0, -(-count // TILE), tile, zero)
    return _gradient(model, params, loss, grads, count.astype(jnp.float32), summed)


def _loss_sum(model: Model, params: Tree, batch: Samples, key: Array | None) -> Array:
    losses = model.loss(model.forward(params, batch.x, key), batch.y)
    if batch.weight is not None:
        losses = batch.weight * losses
    return jnp.sum(jnp.where(batch.mask, losses, 0.0))


def _gradient(model: Model, params: Tree, loss: Array, grads: Tree, count: Array, summed: bool) -> Gradient:
    """From the summed loss and its gradients."""
    divisor = jnp.maximum(count, 1.0)
    if not summed:
        grads = jax.tree.map(lambda g: g / divisor, grads)
    if model.penalty is not None:
        grads = jax.tree.map(jnp.add, grads, jax.grad(model.penalty)(params))
    return Gradient(loss / divisor, count, grads)
