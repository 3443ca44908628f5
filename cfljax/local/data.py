"""A client's samples, in the pieces that local training takes them in."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.federation.gather import client_rows, samples
from cfljax.types import Federation, Split

TILE = 256
"""Samples that a full-batch pass holds at a time. Longer clients are summed tile by tile, so the cost is a client's own."""

RUNGS = (0, 64, 128, 256, 512, 1024, *(4**k for k in range(6, 16)))
"""How many samples are shuffled at a time, at least."""


def take(
    federation: Federation, split: Split, client: jax.Array, positions: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(x f32[B, ...], y i32[B]): one client's samples at these positions of its list; zeros where the mask is False."""
    rows = client_rows(split, client, positions)
    return samples(federation, jnp.broadcast_to(client, positions.shape), rows, mask)


def shuffle(key: jax.Array, count: jax.Array, longest: int, batch: int, one_by_one: bool) -> jax.Array:
    """i32[..., longest rounded up to whole batches]: a shuffle of 0 … count − 1, then the rest, for each of key[...].

    `one_by_one` sorts only as much as this client needs (64, 128, 256, …), which is a real saving where clients are trained
    in sequence; the shuffle is the same.
    """
    length = -(-longest // batch) * batch
    permute = keys.permutation
    for _ in range(key.ndim):
        permute = jax.vmap(permute, (0, None, None))
    if not one_by_one:
        return permute(key, count, length)
    sizes = [size for size in RUNGS if size < length] + [length]

    def sort(size: int) -> Callable[[], jax.Array]:
        rest = jnp.broadcast_to(jnp.arange(size, length, dtype=jnp.int32), (*key.shape, length - size))
        return lambda: jnp.concatenate([permute(key, count, size), rest], -1) if size else rest

    which = sum(jnp.asarray(count > size, jnp.int32) for size in sizes[:-1])
    return jax.lax.switch(which, [sort(size) for size in sizes])
