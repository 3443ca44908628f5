"""Keeps kernels transposed while a client trains. On a CPU the products of a mini-batch with a tall and thin kernel, and those of
its gradient, take half as long when it is transposed. On a GPU every kernel's gradient comes out transposed: to turn it
takes two launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cfljax.lazy import jax, jnp
from cfljax.models.dense import by_rows, is_thin
from cfljax.types import Array, Model, Tree


def turns(tree: Tree, every: bool = False) -> Callable[[Tree | None], Tree]:
    """A function that transposes thin kernels, or every one, in trees of parameters of the same form as `tree`. Applied twice it
    changes nothing; it returns None for None."""
    which = jax.tree.map(lambda leaf: leaf.ndim == 2 and (every or is_thin(leaf.shape)), tree)
    return lambda tree: None if tree is None else jax.tree.map(lambda turns, leaf: leaf.T if turns else leaf, which, tree)


def turned(model: Model, every: bool = False) -> Model:
    """A copy of the model whose tree of parameters holds thin kernels, or every one, transposed. Flat vectors do not change."""
    turn = turns(jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32)), every)

    def forward(params: Tree, x: Array, key: Array | None = None) -> Array:
        with contextlib.nullcontext() if every else by_rows():
            return model.forward(turn(params), x, key)

    return model._replace(
        unravel=lambda flat: turn(model.unravel(flat)),
        ravel=lambda params: model.ravel(turn(params)),
        forward=forward,
    )
