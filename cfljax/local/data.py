"""A client's samples by their positions in its list, and the shuffles by which local training
visits them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cfljax import keys
from cfljax.federation.gather import client_rows, samples
from cfljax.lazy import jax, jnp
from cfljax.types import Array, Cohort, Federation, Split

# The most samples that a pass over all data of a client holds at a time. Larger clients are summed
# tile by tile, so that a client costs no more than its number of samples requires
MAX_TILE = 256

# Lengths of shuffles: a client's shuffle sorts the smallest of these numbers of positions that its
# samples fit into, or all
SHUFFLE_LENGTHS = (
    0,
    64,
    128,
    256,
    512,
    keys.SHORT_LENGTH,
    4 * keys.SHORT_LENGTH,
    16 * keys.SHORT_LENGTH,
    64 * keys.SHORT_LENGTH,
)


def take(
    federation: Federation, split: Split, client: Array, positions: Array, mask: Array
) -> tuple[Array, Array]:
    """Return (x f32[B, ...], y i32[B]): one client's samples at these positions of its list, and
    labels; zeros if masked."""
    return samples(federation, client, client_rows(split, client, positions), mask)


def shuffle(
    key: Array,
    count: Array,
    longest: int,
    batch: int,
    sequential: bool,
    rungs: tuple[int, ...] = SHUFFLE_LENGTHS,
) -> Array:
    """Shuffle 0 … count − 1 for each of the keys, followed by the other numbers below L.

    Args:
      key: key[...] random keys.
      count: i32[] how many numbers are shuffled.
      longest: The largest count of any client; L is this rounded up to whole batches.
      batch: The samples of a batch.
      sequential: Whether clients train one after another. If so, the sort has the smallest of the
        lengths `rungs` that `count` fits into, which saves time and gives the same shuffle. Side by
        side, all lengths would be sorted.
      rungs: Lengths, ascending.

    Returns:
      i32[..., L].
    """
    length = -(-longest // batch) * batch
    if key.ndim == 0:
        return shuffle(key[None], count, longest, batch, sequential, rungs)[0]
    if not sequential:
        return jax.vmap(lambda one: keys.permutation(one, count, length))(key)
    # A power of two is sorted faster than a number of whole batches
    power = 1 << (length.bit_length() - 1)
    sizes = [size for size in rungs if size < longest] + [power if longest <= power else length]
    which = sum((jnp.asarray(count > size, jnp.int32) for size in sizes[:-1]), start=jnp.int32(0))
    return jax.lax.switch(which, [_sort(key, count, size, length) for size in sizes])


def _sort(key: Array, count: Array, size: int, length: int) -> Callable[[], Array]:
    """Return a function () -> i32[..., length] that shuffles for each key; only the first `size`
    positions are sorted."""
    rest = jnp.broadcast_to(jnp.arange(size, length, dtype=jnp.int32), (*key.shape, length - size))
    permute = keys.short_permutation if size <= keys.SHORT_LENGTH else keys.permutation
    if size == 0:
        return lambda: rest
    return lambda: jnp.concatenate([jax.vmap(lambda of: permute(of, count, size))(key), rest], -1)


def first_batches(
    key: Array, federation: Federation, cohort: Cohort, batch: int | None, sequential: bool
) -> Federation:
    """Return a federation in which each participant holds only the first mini-batch of `batch`
    samples that `Solver.fit` takes with this key. For a batch of None it is the given
    federation."""
    if batch is None:
        return federation
    split = federation.train
    size = min(batch, split.longest)

    def first(of: tuple[Array, Array]) -> Array:
        each, client = of
        order = shuffle(
            keys.fold(each, "epoch", 0), split.count[client], split.longest, size, sequential
        )
        return client_rows(split, client, order)[:size]

    ids = jnp.asarray(cohort.ids)
    each = keys.fold_each(key, "client", jnp.asarray(federation.uid)[ids])
    rows = jax.lax.map(first, (each, ids)) if sequential else jax.vmap(first)((each, ids))
    nothing = jnp.zeros(federation.clients, jnp.int32)
    begin = jnp.arange(rows.shape[0], dtype=jnp.int32) * size
    held = jnp.minimum(jnp.asarray(split.count)[ids], size)
    start, count = (cohort.write(nothing, each) for each in (begin, held))
    return dataclasses.replace(federation, train=Split(rows.reshape(-1), start, count, size))
