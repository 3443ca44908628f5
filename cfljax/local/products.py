"""Gram matrices (the inner products of a client's samples): computed when the client trains, or for
all clients before round 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cfljax.federation.gather import samples
from cfljax.lazy import jax, jit, jnp
from cfljax.local.data import take
from cfljax.types import Array, Federation, Grams, Plan, on_host

GRAM_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
"""The sizes of Gram matrices: a client is padded to the smallest that its samples fit into. They
are fixed, so that a client's result does not depend on the sizes of other clients."""
# A matrix of at most this number of samples is computed by one product
MAX_WHOLE_GRAM = 240
# A larger one is computed in square blocks of this number of samples
GRAM_BLOCK = 64
# The number of samples that are fetched at a time
FETCHED_SAMPLES = 2048
# The rows of an array of matrices are filled up to a multiple of this, so that federations that
# differ little share a compiled program
ROW_UNIT = 1024

_fetch = jit()(samples)


class Gram(NamedTuple):
    """A client's matrix X Xᵀ f32[n, n], as an array of its own or as a part of a larger array."""

    # f32[rows, n], rows ≥ n
    rows: Array
    # i32[] the client's first row in `rows`; None: `rows` holds this client alone
    first: Array | None
    # i32[] the number of the client's rows after its first
    last: Array

    def of(self, where: Array) -> Array:
        """Return the rows of the samples at `where` i32[B], f32[B, n]. In a shared array, padding
        gets the client's last row."""
        return self.rows[
            where if self.first is None else self.first + jnp.minimum(where, self.last)
        ]


def all_samples(federation: Federation, client: Array, length: int) -> tuple[Array, Array]:
    """Return the samples of a client f32[length, inputs], which has at most `length`, and their
    labels i32[length]; then zeros."""
    slot = jnp.arange(length, dtype=jnp.int32)
    x, y = take(federation, federation.train, client, slot, slot < federation.train.count[client])
    return x.reshape(length, -1), y


def compute_gram(x: Array, count: Array, in_turn: bool) -> Gram:
    """Compute the matrix of samples x f32[n, inputs], of which only the first `count` are not zero.
    `in_turn`: a large matrix is computed block by block, without the blocks of zeros."""
    whole = not in_turn or x.shape[0] <= MAX_WHOLE_GRAM
    return Gram(x @ x.T if whole else products(x, count), None, count - 1)


def read_gram(grams: Grams, client: Array, count: Array, length: int, whole: bool) -> Gram:
    """Return the matrix of a client of `count` samples, from the array of `grams` for clients of up
    to `length`. `whole`: as f32[length, length] with zeros after the client's rows; otherwise as a
    part of that array."""
    rows = grams.rows[grams.sizes.index(length)]
    first = grams.start[client]
    if not whole:
        return Gram(rows, first, count - 1)
    own = jnp.arange(length)[:, None] < count
    return Gram(
        jnp.where(own, jax.lax.dynamic_slice(rows, (first, 0), (length, length)), 0.0),
        None,
        count - 1,
    )


def products(x: Array, count: Array) -> Array:
    """Compute X Xᵀ f32[n, n] of the first `count` samples, zeros elsewhere. Blocks above the
    diagonal are mirrored."""
    length = x.shape[0]

    def read_block(i: Array) -> Array:
        # The last block ends where x does
        return jax.lax.dynamic_slice_in_dim(x, i * GRAM_BLOCK, GRAM_BLOCK)

    def row(i: Array, gram: Array) -> Array:
        own = read_block(i)

        def cell(j: Array, gram: Array) -> Array:
            block = own @ read_block(j).T
            gram = jax.lax.dynamic_update_slice(gram, block, (i * GRAM_BLOCK, j * GRAM_BLOCK))
            return jax.lax.dynamic_update_slice(gram, block.T, (j * GRAM_BLOCK, i * GRAM_BLOCK))

        return jax.lax.fori_loop(0, i + 1, cell, gram)

    return jax.lax.fori_loop(0, -(-count // GRAM_BLOCK), row, jnp.zeros((length, length)))


def gram_sizes(plan: Plan, longest: int, batch: int | None) -> tuple[int, ...]:
    """Return the sizes of Gram matrices, ascending, for clients of 1 … `longest` samples. Each is a
    multiple of the batch size. Clients larger than the last size are trained step by step."""
    if plan.gram < 1:
        return ()
    if longest <= plan.gram and (batch is None or not plan.sequential):
        # A full batch changes the last bits anyway; side by side, all clients take the time of the
        # largest
        sizes = [longest]
    elif plan.sequential:
        sizes = [
            rung
            for rung, below in zip(GRAM_SIZES, (0, *GRAM_SIZES), strict=False)
            if below < longest and rung <= plan.gram
        ]
    else:
        sizes = []
    unit = 1 if batch is None else min(batch, longest)
    return tuple(dict.fromkeys(-(-size // unit) * unit for size in sizes))


def count_gram_bytes(counts: np.ndarray, sizes: tuple[int, ...]) -> int:
    """HOST. Return the bytes of the Gram matrices of clients with these numbers of samples
    i32[C]."""
    return sum(
        4 * size * rows for size, rows in zip(sizes, _lay_out(counts, sizes)[2], strict=True)
    )


def compute_grams(federation: Federation, sizes: tuple[int, ...]) -> Grams:
    """HOST. Compute the Gram matrices of all clients, as numpy arrays. Clients that are larger than
    the last size have none."""
    which, start, room = _lay_out(np.asarray(federation.train.count), sizes)
    rows = tuple(
        np.zeros((number, size), np.float32) for number, size in zip(room, sizes, strict=True)
    )
    for client, x in _iterate_clients(federation, np.flatnonzero(which >= 0)):
        at = start[client]
        rows[which[client]][at : at + len(x), : len(x)] = x @ x.T
    return Grams(on_host(start), tuple(map(on_host, rows)))


def _lay_out(
    counts: np.ndarray, sizes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Lay out the matrices: i32[C] the index of each client's size, −1: none; i32[C] its first row
    in the array for that size; the number of rows of each array. After a client's first row each
    array has at least `size` − 1 more, so that a square matrix can be read as one slice."""
    which = np.searchsorted(sizes, counts).astype(np.int32)
    which[(counts == 0) | (which == len(sizes))] = -1
    start = np.zeros(len(counts), np.int32)
    room = []
    for number, size in enumerate(sizes):
        here = which == number
        start[here] = np.cumsum(counts[here]) - counts[here]
        room.append(-(-(int(counts[here].sum()) + size) // ROW_UNIT) * ROW_UNIT)
    return which, start, room


def _iterate_clients(
    federation: Federation, clients: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (client, f32[n, inputs] its n training samples) for each of the clients i32[m], in this
    order."""
    rows = np.asarray(federation.train.rows)
    start = np.asarray(federation.train.start)
    count = np.asarray(federation.train.count)
    own = [rows[start[client] : start[client] + count[client]] for client in clients]
    tiles = _iterate_tiles(
        federation,
        np.repeat(clients, count[clients]).astype(np.int32),
        np.concatenate([rows[:0], *own]),
    )
    # The samples that are fetched and not yet handed on
    fetched = None
    for client in clients:
        while fetched is None or len(fetched) < count[client]:
            fetched = next(tiles) if fetched is None else np.concatenate([fetched, next(tiles)])
        yield client, fetched[: count[client]]
        fetched = fetched[count[client] :]


def _iterate_tiles(
    federation: Federation, client: np.ndarray, rows: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield f32[FETCHED_SAMPLES, inputs]: the samples at the next pool rows of i32[T], each as its
    client i32[T] sees it. The last array is padded with zeros."""
    for begin in range(0, len(rows), FETCHED_SAMPLES):
        slot = np.arange(begin, begin + FETCHED_SAMPLES)
        position = np.minimum(slot, len(rows) - 1)
        owners = on_host(client[position])
        fetched_rows = on_host(rows[position])
        real = on_host(slot < len(rows))
        x = _fetch(federation, owners, fetched_rows, real)[0]
        yield np.asarray(x).reshape(FETCHED_SAMPLES, -1)
