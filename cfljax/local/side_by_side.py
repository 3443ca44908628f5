"""Clients side by side, under `vmap`, count their steps together: a step reads its part of an array at one index for all."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cfljax.lazy import custom_vmap, jax, jnp
from cfljax.types import Array, Tree


def take_step(every: Tree, number: Array) -> Tree:
    """Return the entries of a step in arrays with a leading axis of steps."""
    return jax.tree.map(lambda each: _make_entry(0)(each, number), every)


@functools.cache
def _make_entry(axis: int) -> Callable[[Array, Array], Array]:
    """Make a function (array, index i32[]) -> its entries at this index on this axis. If the index is the same for all, it stays a
    slice under `vmap`: JAX would make a gather of it, for which a TPU computes indices in separate kernels."""

    @custom_vmap()
    def entry(each: Array, number: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(each, number, axis, keepdims=False)

    @entry.def_vmap
    def _(_size: int, mapped: list[bool], each: Array, number: Array) -> tuple[Array, bool]:
        if mapped[1]:
            one = functools.partial(jax.lax.dynamic_index_in_dim, axis=axis, keepdims=False)
            return jax.vmap(one, in_axes=(0 if mapped[0] else None, 0))(each, number), True
        return (_make_entry(axis + 1) if mapped[0] else entry)(each, number), mapped[0]

    return entry


@custom_vmap()
def max_of(number: Array) -> Array:
    """Return the number itself, i32[]; under `vmap` the largest of all, which bounds a loop for all at once."""
    return number


@max_of.def_vmap
def _(_size: int, _mapped: list[bool], number: Array) -> tuple[Array, bool]:
    return max_of(jnp.max(number, axis=0)), False
