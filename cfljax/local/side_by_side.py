"""What clients that train side by side, under `vmap`, have in common: they count their steps together, and so a step finds its part
of an array at one place for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cfljax.lazy import custom_vmap, jax, jnp
from cfljax.types import Array, Tree


def at_step(every: Tree, number: Array) -> Tree:
    """The entries of a step in arrays with a leading axis of steps."""
    return jax.tree.map(lambda each: _entry_on(0)(each, number), every)


@functools.cache
def _entry_on(axis: int) -> Callable[[Array, Array], Array]:
    """A function (array, index i32[]) -> its entries at this index on this axis. Where the index is the same for all, it stays a
    slice under `vmap`: JAX makes a gather of it, for which a TPU computes indices in kernels of their own."""

    @custom_vmap()
    def entry(each: Array, number: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(each, number, axis, keepdims=False)

    @entry.def_vmap
    def _(_size: int, mapped: list[bool], each: Array, number: Array) -> tuple[Array, bool]:
        if mapped[1]:
            one = functools.partial(jax.lax.dynamic_index_in_dim, axis=axis, keepdims=False)
            return jax.vmap(one, in_axes=(0 if mapped[0] else None, 0))(each, number), True
        return (_entry_on(axis + 1) if mapped[0] else entry)(each, number), mapped[0]

    return entry


@custom_vmap()
def most_of(number: Array) -> Array:
    """i32[]: the number itself; under `vmap` the largest of all, by which a loop turns for all at once."""
    return number


@most_of.def_vmap
def _(_size: int, _mapped: list[bool], number: Array) -> tuple[Array, bool]:
    return most_of(jnp.max(number, axis=0)), False
