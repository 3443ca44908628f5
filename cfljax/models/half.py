"""Networks in bfloat16: `train.precision = "bfloat16"`."""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jax, jnp
from cfljax.models.flat import NetForward, mark_statistics
from cfljax.types import Array, Model, Tree


def in_bfloat16(model: Model, tokens: bool = False) -> Model:
    """Return the model whose network computes in bfloat16, forwards and backwards, in training and when it is scored.

    Parameters, their gradients, statistics of batches and losses stay float32. The model does not train on Gram matrices, which are
    products of the samples as they are. `tokens`: samples are ids of tokens, which stay: bfloat16 has no odd numbers above 256.
    """
    forward = model.forward
    assert isinstance(forward, NetForward)
    marks = mark_statistics(model)

    def apply(params: Tree, x: Array, key: Array | None, *mask: Array) -> Array:
        halves = jax.tree.map(lambda leaf, running: leaf if running else _half(leaf), params, marks)
        return forward.apply(halves, x if tokens else _half(x), key, *mask).astype(jnp.float32)

    return model._replace(forward=dataclasses.replace(forward, apply=apply, net=forward.net._replace(first=None)))


def _half(leaf: Array) -> Array:
    return leaf.astype(jnp.bfloat16) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
