"""The one way to derive random keys: by name and identity, never by position in a split, so that padding, order and
batching of clients change no draw."""

from __future__ import annotations

import zlib

import jax
import jax.numpy as jnp

FEW = 1 << 10
"""Positions that a drawn number leaves room for in its word."""


def root(seed: int | jax.Array) -> jax.Array:
    """The key of a run. The generator is named, so that a user's `jax_default_prng_impl` cannot change results."""
    return jax.random.key(seed, impl="threefry2x32")


def fold(key: jax.Array, name: str, *numbers: int | jax.Array) -> jax.Array:
    """`fold(key, "client", uid)`: the key for this purpose and these identities."""
    key = jax.random.fold_in(key, zlib.crc32(name.encode()))
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def fold_each(key: jax.Array, name: str, ids: jax.Array) -> jax.Array:
    """key[len(ids)]: one key per identity."""
    key = fold(key, name)
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.asarray(ids))


def scores(key: jax.Array, name: str, ids: jax.Array) -> jax.Array:
    """u32[len(ids)] random bits, one number per identity, the same whatever else is in the list."""
    return jax.random.key_data(fold_each(key, name, ids))[:, 0]  # a folded key is itself a draw of the generator


def permutation(key: jax.Array, count: jax.Array, length: int) -> jax.Array:
    """i32[length]: a shuffle of 0 … count − 1, then the rest. `length` pads only: it does not change the shuffle.

    Positions are sorted by drawn numbers: of 31 bits, or of 21 where there are few, which then fit into one word with the position;
    a CPU sorts single words in a fifth of the time of pairs."""
    where = jnp.arange(length, dtype=jnp.uint32)
    with jax.threefry_partitionable(True):  # else the first bits would depend on `length`
        drawn = jax.random.bits(key, (length,), jnp.uint32) >> 1
    short = drawn & ~jnp.uint32(FEW - 1)
    if length <= FEW:
        words = jnp.where(where < count, short, jnp.uint32(1 << 31)) | where
        return (jax.lax.sort(words) & (FEW - 1)).astype(jnp.int32)
    bits = jnp.where(where < count, jnp.where(count <= FEW, short, drawn), jnp.uint32(0xFFFFFFFF))
    return jax.lax.sort((bits, where.astype(jnp.int32)), num_keys=1, is_stable=True)[1]
