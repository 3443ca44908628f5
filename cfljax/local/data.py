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


def take(
    federation: Federation, split: Split, client: jax.Array, positions: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(x f32[B, ...], y i32[B]): one client's samples at these positions of its list; zeros where the mask is False."""
    rows = client_rows(split, client, positions)
    return samples(federation, jnp.broadcast_to(client, positions.shape), rows, mask)


def shuffle(key: jax.Array, count: jax.Array, longest: int, batch: int, one_by_one: bool) -> jax.Array:
    """i32[longest rounded up to whole batches]: a shuffle of 0 … count − 1, then filler.

    `one_by_one` sorts only as much as this client needs (64, 256, 1024, …), which is a real saving where clients are trained
    in sequence; the shuffle is the same.
    """
    length = -(-longest // batch) * batch
    if not one_by_one:
        return keys.permutation(key, count, length)
    sizes = [4**k for k in range(3, 16) if 2 * 4**k <= length] + [length]

    def sort(size: int) -> Callable[[], jax.Array]:
        return lambda: jnp.pad(keys.permutation(key, count, size), (0, length - size))

    which = sum(jnp.asarray(count > size, jnp.int32) for size in sizes[:-1])
    return jax.lax.switch(which, [sort(size) for size in sizes]) if len(sizes) > 1 else sort(length)()
