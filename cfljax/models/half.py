"""Networks in bfloat16: `train.precision = "bfloat16"`."""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jax, jnp
from cfljax.models.flat import NetForward
from cfljax.types import Array, Model, Tree


def in_bfloat16(model: Model, tokens: bool = False) -> Model:
    """Return the model whose network computes in bfloat16, forwards and backwards, in training and when it is scored.

    Parameters, their gradients and losses stay float32. The model does not train on Gram matrices, which are products of the
    samples as they are. `tokens`: samples are ids of tokens, which stay as they are: bfloat16 has no odd numbers above 256.
    """
    forward = model.forward
    assert isinstance(forward, NetForward)

    def apply(params: Tree, x: Array, key: Array | None) -> Array:
        return forward.apply(jax.tree.map(_half, params), x if tokens else _half(x), key).astype(jnp.float32)

    return model._replace(forward=dataclasses.replace(forward, apply=apply, net=forward.net._replace(first=None)))


def _half(leaf: Array) -> Array:
    return leaf.astype(jnp.bfloat16) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
