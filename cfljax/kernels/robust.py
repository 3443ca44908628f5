"""Robust means of a cluster's updates, which a few attackers cannot move far: the coordinate-wise
median and trimmed mean (Yin et al. 2018), and Krum (Blanchard et al. 2017), the update nearest to
its neighbours.

The members of a cluster are the participants whose entry in its row of `mix` is not 0 and whose
update is finite. The statistic does not use their weights; it is multiplied by the sum of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from cfljax.kernels.blocks import squared_distances
from cfljax.lazy import jax, jnp

Number = jax.Array | float


def robust_sum(
    mix: jax.Array, rows: jax.Array, finite: jax.Array, statistic: str, number: Number = 0.0
) -> jax.Array:
    """Return f32[K, d]: for each cluster, the weight of its members times the statistic of their
    rows; 0 without members.

    Args:
      mix: f32[K, S] the weight of each participant in each cluster.
      rows: f32[S, d] the updates.
      finite: bool[S] which updates are finite.
      statistic: A name of STATISTICS.
      number: The share that `"trimmed_mean"` cuts off at either end, or the share of attackers
        among the members, for `"krum"`.
    """
    find = STATISTICS[statistic]
    clean = jnp.where(finite[:, None], rows, 0.0)
    # The other statistics do not read distances; they get an array that exists anyway
    distances = squared_distances(clean, clean) if statistic == "krum" else clean

    def of_cluster(weights: jax.Array) -> jax.Array:
        member = (weights != 0) & finite
        return jnp.sum(jnp.where(member, weights, 0.0)) * find(clean, member, number, distances)

    # One cluster after another: each sorts a copy of all rows
    return jax.lax.map(of_cluster, mix)


def median(rows: jax.Array, member: jax.Array, _: Number, __: jax.Array) -> jax.Array:
    """Return f32[d] the median of each coordinate of the rows f32[S, d] where member bool[S]; for
    an even number of members the mean of the two in the middle."""

    def of(ordered: jax.Array, n: jax.Array) -> jax.Array:
        middle = jnp.stack([jnp.maximum(n - 1, 0) // 2, n // 2])
        return jnp.where(n > 0, jnp.take(ordered, middle, axis=1, mode="clip").mean(axis=1), 0.0)

    return _apply_to_sorted(rows, member, of)


def trimmed_mean(rows: jax.Array, member: jax.Array, share: Number, _: jax.Array) -> jax.Array:
    """Return f32[d] the mean of each coordinate of the rows f32[S, d] where member bool[S], without
    its ⌊share · n⌋ smallest and ⌊share · n⌋ largest numbers."""

    def of(ordered: jax.Array, n: jax.Array) -> jax.Array:
        cut = jnp.minimum(_round_down(share, n), jnp.maximum(n - 1, 0) // 2)
        rank = jnp.arange(ordered.shape[1])
        inside = (rank >= cut) & (rank < n - cut)
        return jnp.where(inside, ordered, 0.0).sum(axis=1) / jnp.maximum(n - 2 * cut, 1)

    return _apply_to_sorted(rows, member, of)


def krum(rows: jax.Array, member: jax.Array, share: Number, distances: jax.Array) -> jax.Array:
    """Return f32[d] the member (member bool[S]) of the rows f32[S, d] with the smallest sum of
    squared distances f32[S, S] to its n − f − 2 nearest members, f = ⌊share · n⌋."""
    n = jnp.sum(member, dtype=jnp.int32)
    others = member[None, :] & ~jnp.eye(rows.shape[0], dtype=bool)
    near = jnp.maximum(n - _round_down(share, n) - 2, 1)
    nearest = jnp.sort(jnp.where(others, distances, jnp.inf), axis=1)
    counted = (jnp.arange(rows.shape[0]) < near) & jnp.isfinite(nearest)
    score = jnp.where(member, jnp.where(counted, nearest, 0.0).sum(axis=1), jnp.inf)
    # Of several with the smallest sum (two members always tie) the shortest: the order of
    # participants must not decide
    length = jnp.where(member & (score == score.min()), jnp.sum(rows**2, axis=1), jnp.inf)
    return jnp.where(n > 0, rows[jnp.argmin(length)], 0.0)


STATISTICS: dict[str, Callable[..., jax.Array]] = {
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
}


def _round_down(share: Number, n: jax.Array) -> jax.Array:
    """Return i32[]: ⌊share · n⌋."""
    # A product just below a whole number, by float32's rounding, counts as this number
    return jnp.floor(share * n + 1e-4).astype(jnp.int32)


def _apply_to_sorted(
    rows: jax.Array, member: jax.Array, of: Callable[[jax.Array, jax.Array], jax.Array]
) -> jax.Array:
    """Return `of(ordered, n)` f32[d] for the n members' numbers in ascending order, f32[d, S'] with
    infinity behind them. S' is the smallest of 8, 16, 32, … that holds the members: sorting all S
    participants for a small cluster would be slow."""
    n = jnp.sum(member, dtype=jnp.int32)
    members_first = jnp.argsort(~member, stable=True)
    sizes = [size for k in range(3, 24) if (size := 1 << k) < rows.shape[0]] + [rows.shape[0]]

    def sort(size: int) -> jax.Array:
        chosen = members_first[:size]
        numbers = jnp.where(member[chosen][:, None], rows[chosen], jnp.inf)
        return of(jnp.sort(numbers.T, axis=1, stable=False), n)

    if len(sizes) == 1:
        return sort(sizes[0])
    # The size is data, shapes are static: each size is a branch
    which = sum(jnp.asarray(n > size, jnp.int32) for size in sizes[:-1])
    return jax.lax.switch(which, [functools.partial(sort, size) for size in sizes])
