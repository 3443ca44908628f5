"""The inner products of a client's samples: made in its turn, or those of all clients once, before the first round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.federation.gather import samples
from cfljax.local.data import take
from cfljax.types import Array, Federation, Grams, on_host

BLOCK, WHOLE = 64, 240
"""Samples whose products with as many others are computed in one go; up to WHOLE, those of all."""

TILE, UNIT = 2048, 1024
"""Samples that are fetched at a time; whole multiples of which the rows are filled up to, so that federations that differ a little
go through one program."""

_fetch = jax.jit(samples)


class Gram(NamedTuple):
    """A client's matrix X Xᵀ: all of it, or a part of a larger array."""

    rows: Array
    """f32[n or more, n]."""
    first: Array | None
    """i32[] the client's first row; None: there are no others."""
    last: Array
    """i32[] how many rows follow that one."""

    def of(self, where: Array) -> Array:
        """f32[B, n] the rows of these samples; filler gets the client's last."""
        return self.rows[where if self.first is None else self.first + jnp.minimum(where, self.last)]


def all_samples(federation: Federation, client: Array, length: int) -> tuple[Array, Array]:
    """(f32[length, inputs], i32[length]): the samples of a client of at most `length`, and their labels."""
    place = jnp.arange(length, dtype=jnp.int32)
    x, y = take(federation, federation.train, client, place, place < federation.train.count[client])
    return x.reshape(length, -1), y


def made(x: Array, count: Array, in_turn: bool) -> Gram:
    """The matrix of the first `count` samples f32[n, inputs], the others being zeros. `in_turn`: a large one block by block."""
    whole = not in_turn or x.shape[0] <= WHOLE
    return Gram(x @ x.T if whole else products(x, count), None, count - 1)


def kept(grams: Grams, client: Array, count: Array, length: int, whole: bool) -> Gram:
    """The matrix of a client of `count` samples, in the array for clients of up to `length`; `whole`: by itself, with zeros after
    the client's rows."""
    rows, first = grams.rows[grams.sizes.index(length)], grams.start[client]
    if not whole:
        return Gram(rows, first, count - 1)
    own = jnp.arange(length)[:, None] < count
    return Gram(jnp.where(own, jax.lax.dynamic_slice(rows, (first, 0), (length, length)), 0.0), None, count - 1)


def products(x: Array, count: Array) -> Array:
    """f32[n, n] X Xᵀ for the first `count` samples, zeros for the others: block by block up to the diagonal, the rest mirrored."""
    length = x.shape[0]
    some = lambda i: jax.lax.dynamic_slice_in_dim(x, i * BLOCK, BLOCK)  # noqa: E731 (the last ends where x does, here and below)

    def row(i: Array, gram: Array) -> Array:
        mine = some(i)

        def cell(j: Array, gram: Array) -> Array:
            block = mine @ some(j).T
            gram = jax.lax.dynamic_update_slice(gram, block, (i * BLOCK, j * BLOCK))
            return jax.lax.dynamic_update_slice(gram, block.T, (j * BLOCK, i * BLOCK))

        return jax.lax.fori_loop(0, i + 1, cell, gram)

    return jax.lax.fori_loop(0, -(-count // BLOCK), row, jnp.zeros((length, length)))


def memory(counts: np.ndarray, sizes: tuple[int, ...]) -> int:
    """HOST. Bytes of the matrices of clients of so many samples."""
    return sum(4 * size * rows for size, rows in zip(sizes, _laid_out(counts, sizes)[2], strict=True))


def grams_of(federation: Federation, sizes: tuple[int, ...]) -> Grams:
    """HOST. The matrices of all clients' training samples, as numpy arrays, but for clients that are larger than the last size."""
    which, start, room = _laid_out(np.asarray(federation.train.count), sizes)
    rows = tuple(np.zeros((number, size), np.float32) for number, size in zip(room, sizes, strict=True))
    for client, x in _samples_of_each(federation, np.flatnonzero(which >= 0)):
        at = start[client]
        rows[which[client]][at : at + len(x), : len(x)] = x @ x.T
    return Grams(on_host(start), tuple(map(on_host, rows)))


def _laid_out(counts: np.ndarray, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """(i32[C] which of the sizes each client has, −1 for none; i32[C] where its rows begin in the array for that; how many rows
    each array has). A client's first row is followed by as many as a whole matrix has: it can be read in one piece."""
    which = np.searchsorted(sizes, counts).astype(np.int32)
    which[(counts == 0) | (which == len(sizes))] = -1
    start, room = np.zeros(len(counts), np.int32), []
    for number, size in enumerate(sizes):
        here = which == number
        start[here] = np.cumsum(counts[here]) - counts[here]
        room.append(-(-(int(counts[here].sum()) + size) // UNIT) * UNIT)
    return which, start, room


def _samples_of_each(federation: Federation, clients: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(client, f32[its samples, inputs]), one after the other."""
    rows, start, count = (np.asarray(a) for a in (federation.train.rows, federation.train.start, federation.train.count))
    own = [rows[start[client] : start[client] + count[client]] for client in clients]
    tiles = _tiles(federation, np.repeat(clients, count[clients]).astype(np.int32), np.concatenate([rows[:0], *own]))
    line = None
    for client in clients:
        while line is None or len(line) < count[client]:
            line = next(tiles) if line is None else np.concatenate([line, next(tiles)])
        yield client, line[: count[client]]
        line = line[count[client] :]


def _tiles(federation: Federation, client: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    """f32[TILE, inputs] of so many pool rows at a time, each as its client sees it; zeros fill up the last."""
    for begin in range(0, len(rows), TILE):
        place = np.arange(begin, begin + TILE)
        there = np.minimum(place, len(rows) - 1)
        yield np.asarray(_fetch(federation, client[there], rows[there], place < len(rows))[0]).reshape(TILE, -1)
