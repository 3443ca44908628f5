"""Loss and gradient of one client, on a mini-batch or on all of its samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.local.data import TILE, take
from cfljax.types import Federation, Model

Batch = tuple[jax.Array, jax.Array, jax.Array]
"""(x f32[B, ...], y i32[B], mask bool[B])."""
Gradient = tuple[jax.Array, jax.Array, Any]
"""(mean loss f32[], samples f32[], gradient of the mean loss, or of the summed one, and of the model's penalty)."""


def batch_gradient(
    model: Model, params: Any, batch: Batch, key: jax.Array | None, count: jax.Array | None = None, summed: bool = False
) -> Gradient:
    """Over the samples of the batch that are there: a short batch is averaged over its true size, i32[] count where known.
    `summed`: the gradient of the sum of their losses; the penalty is the model's, not a sample's, and counts once."""
    count = (jnp.sum(batch[2]) if count is None else count).astype(jnp.float32)
    loss, grads = jax.value_and_grad(_loss_sum, 1)(model, params, batch, key)
    return _gradient(model, params, loss, grads, count, summed)


def whole_batch(federation: Federation, client: jax.Array) -> Batch | None:
    """All samples of a client at once, or None where clients may hold more than a tile."""
    longest = federation.train.longest
    if longest > TILE:
        return None
    where = jnp.arange(longest)
    mask = where < federation.train.count[client]
    return *take(federation, federation.train, client, where, mask), mask


def full_gradient(
    model: Model,
    federation: Federation,
    client: jax.Array,
    params: Any,
    whole: Batch | None,
    key: jax.Array | None = None,
    summed: bool = False,
) -> Gradient:
    """Over all samples of a client: `whole` from `whole_batch`, or summed tile by tile, as many as the client has."""
    if whole is not None:
        return batch_gradient(model, params, whole, key, summed=summed)
    count = federation.train.count[client]

    def tile(i: jax.Array, total: Any) -> Any:
        where = i * TILE + jnp.arange(TILE)
        mask = where < count
        batch = (*take(federation, federation.train, client, where, mask), mask)
        part = jax.value_and_grad(_loss_sum, 1)(model, params, batch, None if key is None else keys.fold(key, "tile", i))
        return jax.tree.map(jnp.add, total, part)

    zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
    loss, grads = jax.lax.fori_loop(0, -(-count // TILE), tile, zero)
    return _gradient(model, params, loss, grads, count.astype(jnp.float32), summed)


def _loss_sum(model: Model, params: Any, batch: Batch, key: jax.Array | None) -> jax.Array:
    x, y, mask = batch
    return jnp.sum(jnp.where(mask, model.loss(model.forward(params, x, key), y), 0.0))


def _gradient(model: Model, params: Any, loss: jax.Array, grads: Any, count: jax.Array, summed: bool) -> Gradient:
    """Of the summed loss and its gradients."""
    divisor = jnp.maximum(count, 1.0)
    if not summed:
        grads = jax.tree.map(lambda g: g / divisor, grads)
    if model.penalty is not None:
        grads = jax.tree.map(jnp.add, grads, jax.grad(model.penalty)(params))
    return loss / divisor, count, grads
