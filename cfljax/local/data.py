"""A client's samples, in the pieces that local training takes them in."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.federation.gather import client_rows, samples
from cfljax.types import Array, Federation, Split

TILE = 256
"""Samples that a full-batch pass holds at a time. Longer clients are summed tile by tile, so the cost is a client's own."""

RUNGS = (0, 64, 128, 256, 512, keys.SHORT, 4 * keys.SHORT, 16 * keys.SHORT, 64 * keys.SHORT)
"""Numbers of samples that are shuffled together: a client's samples are shuffled with the next larger number, or with all."""


def take(federation: Federation, split: Split, client: Array, positions: Array, mask: Array) -> tuple[Array, Array]:
    """(x f32[B, ...], y i32[B]): one client's samples at these positions of its list; zeros where the mask is False."""
    rows = client_rows(split, client, positions)
    return samples(federation, jnp.broadcast_to(client, positions.shape), rows, mask)


def shuffle(key: Array, count: Array, longest: int, batch: int, sequential: bool, rungs: tuple[int, ...] = RUNGS) -> Array:
    """i32[..., longest rounded up to whole batches]: a shuffle of 0 … count − 1, then the rest, for each of key[...].

    `sequential` sorts only as much as this client needs (the next of the rungs, else all), which is a real saving where clients
    are trained in sequence; the shuffle is the same.
    """
    length = -(-longest // batch) * batch
    if key.ndim == 0:
        return shuffle(key[None], count, longest, batch, sequential, rungs)[0]
    if not sequential:
        return jax.vmap(lambda one: keys.permutation(one, count, length))(key)
    power = 1 << (length.bit_length() - 1)  # sorted faster than what is filled up to whole batches
    sizes = [size for size in rungs if size < longest] + [power if longest <= power else length]
    which = sum((jnp.asarray(count > size, jnp.int32) for size in sizes[:-1]), start=jnp.int32(0))
    return jax.lax.switch(which, [_sort(key, count, size, length) for size in sizes])


def _sort(key: Array, count: Array, size: int, length: int) -> Callable[[], Array]:
    """A shuffle of the first `size` positions for each key."""
    rest = jnp.broadcast_to(jnp.arange(size, length, dtype=jnp.int32), (*key.shape, length - size))
    one = keys.short_permutation if size <= keys.SHORT else keys.permutation
    if size == 0:
        return lambda: rest
    return lambda: jnp.concatenate([jax.vmap(lambda of: one(of, count, size))(key), rest], -1)
