"""Thin kernels are kept transposed while a client trains: on a CPU the products of a mini-batch with a tall and thin kernel, and
those of its gradient, take twice as long."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cfljax.types import Model, Tree

NARROW = 32
"""Outputs of a layer up to which turning its kernel pays (measured, MNIST's 784 inputs: half the time at 10 and 20, none at 64)."""


def turns(tree: Tree) -> Callable[[Tree | None], Tree]:
    """A function that transposes the thin kernels of a tree of parameters of this form, and back; it returns None for None."""
    thin = jax.tree.map(lambda leaf: leaf.ndim == 2 and leaf.shape[1] <= min(NARROW, leaf.shape[0] // 4), tree)
    return lambda tree: None if tree is None else jax.tree.map(lambda is_thin, leaf: leaf.T if is_thin else leaf, thin, tree)


def turned(model: Model) -> Model:
    """The same model with thin kernels transposed inside its tree of parameters. Flat vectors stay as they are, so that only what
    computes on the tree sees a difference."""
    turn = turns(jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32)))
    return model._replace(
        unravel=lambda flat: turn(model.unravel(flat)),
        ravel=lambda params: model.ravel(turn(params)),
        forward=lambda params, x, key=None: model.forward(turn(params), x, key),
    )
