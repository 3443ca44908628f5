"""Trees of parameters: entries at paths, and kernels that stay transposed while a client trains. On
a CPU the products of a mini-batch with a tall and thin kernel, and those of its gradient, take half
as long when it is transposed. On a GPU every kernel's gradient comes out transposed: to turn it
takes two launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cfljax.lazy import jax, jnp
from cfljax.models.layers import by_rows, is_thin
from cfljax.types import Array, Model, Tree


def make_turn(tree: Tree, every: bool = False) -> Callable[[Tree | None], Tree]:
    """Make a function that transposes thin kernels, or all, in trees of parameters of the same form
    as `tree`. Applied twice it changes nothing; it returns None for None."""
    which = jax.tree.map(lambda leaf: leaf.ndim == 2 and (every or is_thin(leaf.shape)), tree)

    def turn(tree: Tree | None) -> Tree:
        if tree is None:
            return None
        return jax.tree.map(lambda turns, leaf: leaf.T if turns else leaf, which, tree)

    return turn


def transpose_kernels(model: Model, every: bool = False) -> Model:
    """Copy the model with thin kernels, or all, transposed in its tree of parameters. Flat vectors
    do not change."""
    turn = make_turn(
        jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32)), every
    )

    def forward(
        params: Tree, x: Array, key: Array | None = None, mask: Array | None = None
    ) -> Array:
        with contextlib.nullcontext() if every else by_rows():
            return model.forward(turn(params), x, key, mask)

    def unravel(flat: Array) -> Tree:
        return turn(model.unravel(flat))

    def ravel(params: Tree) -> Array:
        return model.ravel(turn(params))

    return model._replace(unravel=unravel, ravel=ravel, forward=forward)


def get_path(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Return the entry of nested dictionaries at the path of keys."""
    for name in path:
        tree = tree[name]
    return tree


def drop_path(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Copy the nested dictionaries without the entry at the path of keys."""
    head, *rest = path
    if not rest:
        return {name: value for name, value in tree.items() if name != head}
    return {
        name: drop_path(value, tuple(rest)) if name == head else value
        for name, value in tree.items()
    }


def replace_path(tree: Tree, path: tuple[str, ...], leaf: Array) -> Tree:
    """Copy the nested dictionaries with this leaf at the path of keys."""
    head, *rest = path
    return {**tree, head: replace_path(tree[head], tuple(rest), leaf) if rest else leaf}
