"""Networks in bfloat16: `train.precision = "bfloat16"`."""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jax, jnp
from cfljax.models.flat import NetForward
from cfljax.types import Array, Model, Tree


def in_bfloat16(model: Model) -> Model:
    """The model whose network computes in bfloat16, forwards and backwards, in training and when it is scored. Parameters, their
    gradients and losses stay float32. It does not train on Gram matrices, which are products of the samples as they are."""
    forward = model.forward
    assert isinstance(forward, NetForward)

    def apply(params: Tree, x: Array, key: Array | None) -> Array:
        return forward.apply(jax.tree.map(_half, params), _half(x), key).astype(jnp.float32)

    return model._replace(forward=dataclasses.replace(forward, apply=apply, net=forward.net._replace(first=None)))


def _half(leaf: Array) -> Array:
    return leaf.astype(jnp.bfloat16) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
