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

QUICK = 1024
"""Samples up to which a shuffle is nearly always sure of itself the quick way."""
RUNGS = (0, 64, 128, 256, 512, QUICK)
"""How many samples are shuffled at a time; more: all."""


def take(
    federation: Federation, split: Split, client: jax.Array, positions: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(x f32[B, ...], y i32[B]): one client's samples at these positions of its list; zeros where the mask is False."""
    rows = client_rows(split, client, positions)
    return samples(federation, jnp.broadcast_to(client, positions.shape), rows, mask)


def shuffle(
    key: jax.Array, count: jax.Array, longest: int, batch: int, one_by_one: bool, rungs: tuple[int, ...] = RUNGS
) -> jax.Array:
    """i32[..., longest rounded up to whole batches]: a shuffle of 0 … count − 1, then the rest, for each of key[...].

    `one_by_one` sorts only as much as this client needs (the next of the rungs, else all), the quick way, which is a real saving
    where clients are trained in sequence; the shuffle is the same.
    """
    length = -(-longest // batch) * batch
    if key.ndim == 0:
        return shuffle(key[None], count, longest, batch, one_by_one, rungs)[0]
    whole = lambda one: keys.permutation(one, count, length)  # noqa: E731
    if not one_by_one:
        return jax.vmap(whole)(key)
    sizes = [size for size in rungs if size < length]
    ways = [_quick(key, count, size, length) for size in sizes]
    power = 1 << (length.bit_length() - 1)  # places take fewer bits; a client in between is sorted the slow way
    last = power if length - power < batch and power not in sizes else length
    if last <= QUICK:
        ways.append(_quick(key, count, last, length))
    else:
        ways.append(lambda: (jax.vmap(whole)(key), jnp.ones(key.shape, bool)))
    which = sum((jnp.asarray(count > size, jnp.int32) for size in sizes), start=jnp.int32(0))
    orders, sure = jax.lax.switch(which, ways)

    def again(of: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return jax.lax.cond(of[2], lambda: of[1], lambda: whole(of[0]))

    return jax.lax.cond(jnp.all(sure), lambda: orders, lambda: jax.lax.map(again, (key, orders, sure)))


def _quick(key: jax.Array, count: jax.Array, size: int, length: int) -> Callable[[], tuple[jax.Array, jax.Array]]:
    """A shuffle of `size` positions for each key, and whether it is sure."""
    rest = jnp.broadcast_to(jnp.arange(size, length, dtype=jnp.int32), (*key.shape, length - size))
    if size == 0:
        return lambda: (rest, jnp.ones(key.shape, bool))

    def sort() -> tuple[jax.Array, jax.Array]:
        orders, sure = jax.vmap(lambda one: keys.quick_permutation(one, count, size))(key)
        return jnp.concatenate([orders, rest], -1), sure & (count <= size)

    return sort
