"""Averaging with neighbours in a graph, without a server. A participant has few neighbours, so they
are listed: a mixing matrix f32[S, S] would be nearly all zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from cfljax.lazy import jax, jnp

ABSENT = -1
"""The slot of a neighbour that does not take part."""


class Graph(NamedTuple):
    """An undirected graph without loops among S participants, each with at most k neighbours."""

    slots: jax.Array
    """i32[S, k]: the slots of each participant's neighbours."""
    edges: jax.Array
    """bool[S, k]: which of them there are."""

    @property
    def degree(self) -> jax.Array:
        """i32[S]: the number of neighbours of each participant."""
        return self.edges.sum(axis=1, dtype=jnp.int32)

    def among(self, who: jax.Array) -> Graph:
        """Return the graph without the edges of other participants.

        Args:
            who: bool[S] the participants that stay.
        """
        return Graph(self.slots, self.edges & who[:, None] & who[self.slots])

    def metropolis(self) -> jax.Array:
        """Return f32[S, k]: the weight of each neighbour, 1 / (1 + the larger of the two degrees).
        A participant has what is left for itself. The weights are symmetric, so averaging with
        them keeps the mean over all participants."""
        degree = self.degree
        larger = jnp.maximum(degree[:, None], degree[self.slots])
        return jnp.where(self.edges, 1.0 / (1.0 + larger), 0.0)

    def average(self, rows: jax.Array) -> jax.Array:
        """Return f32[S, d]: the rows, averaged with their neighbours' by Metropolis weights.

        Args:
            rows: f32[S, d] finite rows.
        """
        weights = self.metropolis()
        mixed = (1.0 - weights.sum(axis=1, keepdims=True)) * rows
        # In the order of the graph, which does not depend on slots
        for column in range(weights.shape[1]):
            mixed += weights[:, column, None] * rows[self.slots[:, column]]
        return mixed


def join_slots(lists: Sequence[jax.Array]) -> Graph:
    """Return the graph of all neighbours in some lists. One that is in several counts once.

    Args:
        lists: i32[S, n] each, slots of neighbours, or ABSENT.
    """
    slots = jnp.concatenate(lists, axis=1)
    own = jnp.arange(slots.shape[0], dtype=slots.dtype)[:, None]
    earlier = jnp.tril(jnp.ones((slots.shape[1], slots.shape[1]), bool), k=-1)
    again = ((slots[:, :, None] == slots[:, None, :]) & earlier).any(axis=2)
    return Graph(jnp.maximum(slots, 0), (slots != ABSENT) & (slots != own) & ~again)


def find_slots(wanted: jax.Array, position: jax.Array, mask: jax.Array, room: int) -> jax.Array:
    """Return i32[S, n]: the slots of the participants at some positions; ABSENT where nobody is.

    Args:
        wanted: i32[S, n] positions.
        position: i32[S] where in the graph each participant is.
        mask: bool[S] who takes part.
        room: Above all positions.
    """
    slot = jnp.arange(position.shape[0], dtype=jnp.int32)
    at = jnp.full(room, ABSENT, jnp.int32).at[jnp.where(mask, position, room)]
    found = at.set(slot, mode="drop")[wanted]
    return jnp.where(mask[:, None], found, ABSENT)


def rank(order: Sequence[jax.Array], mask: jax.Array) -> jax.Array:
    """Return i32[n]: the position of each entry when those of the mask are sorted; the others come
    after them.

    Args:
        order: Numbers [n] to sort by, the first of them first.
        mask: bool[n].
    """
    sorted_entries = jnp.lexsort((*reversed(order), ~mask))
    count = jnp.arange(mask.shape[0], dtype=jnp.int32)
    return jnp.zeros_like(count).at[sorted_entries].set(count)


def ring(position: jax.Array, nodes: jax.Array) -> jax.Array:
    """Return i32[S, 2]: the neighbours' positions in a ring.

    Args:
        position: i32[S] positions.
        nodes: i32[] how many there are.
    """
    return jnp.stack([position - 1, position + 1], axis=1) % jnp.maximum(nodes, 1)


def torus(position: jax.Array, nodes: jax.Array, room: int) -> jax.Array:
    """Return i32[S, 4]: the neighbours' positions in the torus that is nearest to a square. Its
    rows have the positions one after another.

    Args:
        position: i32[S] positions.
        nodes: i32[] how many there are.
        room: Not below `nodes`.
    """
    nodes = jnp.maximum(nodes, 1)
    number = jnp.arange(1, math.isqrt(room) + 1, dtype=jnp.int32)
    fits = (nodes % number == 0) & (number * number <= nodes)
    rows = jnp.where(fits, number, 1).max()
    columns = nodes // rows
    row, column = position // columns, position % columns
    beside = ring(column, columns) + (row * columns)[:, None]
    above_and_below = ring(row, rows) * columns + column[:, None]
    return jnp.concatenate([above_and_below, beside], axis=1)


def pairs(position: jax.Array, nodes: jax.Array) -> jax.Array:
    """Return i32[S, 1]: the other's position in pairs of neighbouring positions. The last of an odd
    number has none, and gets its own.

    Args:
        position: i32[S] positions.
        nodes: i32[] how many there are.
    """
    other = position ^ 1
    return jnp.where(other < nodes, other, position)[:, None]
