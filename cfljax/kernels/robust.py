"""Robust means of a cluster's updates, which a few attackers cannot move far: the coordinate-wise
median and trimmed mean (Yin et al. 2018), and Krum (Blanchard et al. 2017), the update nearest to
its neighbours.

The members of a cluster are the participants whose entry in its row of `mix` is not 0 and whose
update is finite. The statistic does not use their weights; it is multiplied by the sum of them.
"""

from __future__ import annotations

from collections.abc import Callable

from cfljax.kernels.blocks import squared_distances
from cfljax.lazy import jax, jnp

Number = jax.Array | float


def robust_sum(
    mix: jax.Array, rows: jax.Array, finite: jax.Array, statistic: str, number: Number = 0.0
) -> jax.Array:
    """f32[K, d]: for each cluster, the weight of its members times the statistic of their rows
    f32[S, d] where finite bool[S]; 0 without members. `number`: the share that is cut off at either
    end ("trimmed_mean"), or the share of attackers among the members ("krum")."""
    find = STATISTICS[statistic]
    clean = jnp.where(finite[:, None], rows, 0.0)
    apart = squared_distances(clean, clean) if statistic == "krum" else clean

    def of_cluster(weights: jax.Array) -> jax.Array:
        member = (weights != 0) & finite
        return jnp.sum(jnp.where(member, weights, 0.0)) * find(clean, member, number, apart)

    return jax.lax.map(of_cluster, mix)  # one after another: each sorts a copy of all rows


def median(rows: jax.Array, member: jax.Array, _: Number, __: jax.Array) -> jax.Array:
    """f32[d]: the median of each coordinate; for an even number of members the mean of the two in
    the middle."""

    def of(ordered: jax.Array, n: jax.Array) -> jax.Array:
        middle = jnp.stack([jnp.maximum(n - 1, 0) // 2, n // 2])
        return jnp.where(n > 0, jnp.take(ordered, middle, axis=1, mode="clip").mean(axis=1), 0.0)

    return _apply_to_sorted(rows, member, of)


def trimmed_mean(rows: jax.Array, member: jax.Array, share: Number, _: jax.Array) -> jax.Array:
    """f32[d]: the mean of each coordinate without its ⌊share · n⌋ smallest and ⌊share · n⌋ largest
    numbers."""

    def of(ordered: jax.Array, n: jax.Array) -> jax.Array:
        cut = jnp.minimum(_part(share, n), jnp.maximum(n - 1, 0) // 2)
        rank = jnp.arange(ordered.shape[1])
        left = (rank >= cut) & (rank < n - cut)
        return jnp.where(left, ordered, 0.0).sum(axis=1) / jnp.maximum(n - 2 * cut, 1)

    return _apply_to_sorted(rows, member, of)


def krum(rows: jax.Array, member: jax.Array, share: Number, apart: jax.Array) -> jax.Array:
    """f32[d]: the member with the smallest sum of squared distances to its n − f − 2 nearest ones,
    f = ⌊share · n⌋; if several have it, the shortest of them."""
    n = jnp.sum(member, dtype=jnp.int32)
    others = member[None, :] & ~jnp.eye(rows.shape[0], dtype=bool)
    near = jnp.maximum(n - _part(share, n) - 2, 1)
    nearest = jnp.sort(jnp.where(others, apart, jnp.inf), axis=1)
    counted = (jnp.arange(rows.shape[0]) < near) & jnp.isfinite(nearest)
    score = jnp.where(member, jnp.where(counted, nearest, 0.0).sum(axis=1), jnp.inf)
    length = jnp.where(member & (score == score.min()), jnp.sum(rows**2, axis=1), jnp.inf)
    return jnp.where(n > 0, rows[jnp.argmin(length)], 0.0)


STATISTICS: dict[str, Callable[..., jax.Array]] = {
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
}


def _part(share: Number, n: jax.Array) -> jax.Array:
    """i32[]: ⌊share · n⌋, with a tolerance: float32 has 0.3 · 10 just below 3."""
    return jnp.floor(share * n + 1e-4).astype(jnp.int32)


def _apply_to_sorted(
    rows: jax.Array, member: jax.Array, of: Callable[[jax.Array, jax.Array], jax.Array]
) -> jax.Array:
    """Return `of(ordered, n)` f32[d] for the n members' numbers in ascending order, f32[d, S'] with
    infinity behind them. S' is the smallest of 8, 16, 32, … that holds the members: sorting all S
    participants for a small cluster would be slow."""
    n, first = jnp.sum(member, dtype=jnp.int32), jnp.argsort(~member, stable=True)
    sizes = [size for k in range(3, 24) if (size := 1 << k) < rows.shape[0]] + [rows.shape[0]]

    def sort(size: int) -> jax.Array:
        chosen = first[:size]
        numbers = jnp.where(member[chosen][:, None], rows[chosen], jnp.inf)
        return of(jnp.sort(numbers.T, axis=1, stable=False), n)

    which = sum(jnp.asarray(n > size, jnp.int32) for size in sizes[:-1])
    return (
        jax.lax.switch(which, [lambda size=size: sort(size) for size in sizes])
        if len(sizes) > 1
        else sort(sizes[0])
    )  # type: ignore[misc]
