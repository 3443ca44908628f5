"""A narrow first layer, kept as rows of inputs: on a CPU the products of a mini-batch with a tall and thin kernel take twice as
long as with the same kernel lying flat."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from cfljax.local.gram import first_layer, inner, replaced
from cfljax.types import Model

NARROW = 32
"""Outputs of a first layer up to which turning it pays (measured, MNIST's 784 inputs: half the time at 10 and 20, none at 64)."""


def turned(model: Model) -> Model:
    """The same model with its first kernel transposed inside its tree of parameters; itself where that is not narrow. Flat
    vectors stay as they are, so that only what computes on the tree sees a difference."""
    first = first_layer(model)
    if first is None:
        return model
    inputs, width = inner(jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32)), first.kernel).shape
    if width > min(NARROW, inputs // 4):
        return model

    def flip(params: Any) -> Any:
        return replaced(params, first.kernel, inner(params, first.kernel).T)

    def forward(params: Any, x: jax.Array, key: jax.Array | None = None) -> jax.Array:  # noqa: ARG001 (such a model draws nothing)
        z = jax.lax.dot_general(x.reshape(x.shape[0], -1), inner(params, first.kernel), (((1,), (1,)), ((), ())))
        return first.rest(params, z + inner(params, first.bias))

    return model._replace(
        unravel=lambda flat: flip(model.unravel(flat)), ravel=lambda params: model.ravel(flip(params)), forward=forward
    )
