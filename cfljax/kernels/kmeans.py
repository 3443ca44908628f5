"""K-means with greedy K-means++ starts and restarts (Arthur and Vassilvitskii; Lloyd), for points
with few or with a million numbers. Draws depend on the points' identities: padding changes no
label, nor does their order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from cfljax import keys
from cfljax.kernels.blocks import HIGHEST, combine, invert, product, squared_distances, usable_rows
from cfljax.lazy import chex, jax, jnp

# The numbers per point up to which distances come from differences; above it they come from
# products
MAX_DIRECT_LENGTH = 64
Distance = Callable[[jax.Array], jax.Array]
"""members f32[n, K], each column the weights of a mean of points -> f32[n, K] squared distances to
those means."""


_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


class Kmeans(NamedTuple):
    """The best of the restarts."""

    # i32[n], numbered in the order of their first points by uid; −1 for masked and non-finite
    # points
    labels: jax.Array
    centres: jax.Array  # f32[K, d]
    inertia: jax.Array  # f32[]: the sum of the squared distances of the points to their centres


def kmeans(
    key: jax.Array,
    points: jax.Array,
    clusters: int,
    mask: jax.Array | None = None,
    uid: jax.Array | None = None,
    restarts: int = 10,
    max_iter: int | jax.Array = 300,
    weight: jax.Array | None = None,
) -> Kmeans:
    """K-means of points f32[n, d]; mask bool[n]; uid i32[n] ≥ 0, distinct: the points' identities
    (default: positions). As in scikit-learn an emptied cluster is moved to the point farthest from
    its centre, and the restart with the smallest inertia wins (the first, where they agree to
    1e-6). With fewer distinct points than clusters some clusters stay empty. Long points are
    handled through their n × n products. `weight` f32[n] ≥ 1: how often each point counts."""
    chex.assert_rank(points, 2)
    n = points.shape[0]
    present = usable_rows(points, mask)
    ids = jnp.arange(n, dtype=jnp.int32) if uid is None else uid
    chex.assert_shape([present, ids], (n,))
    distance, spread = _distances(points, present)

    def attempt(one: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        members = _plus_plus(one, distance, present, ids, clusters, weight)
        return _lloyd(distance, members, present, max_iter, weight)

    labels, members, inertia = jax.vmap(attempt)(
        keys.fold_each(key, "restart", jnp.arange(restarts))
    )
    least = jnp.argmin(inertia)
    best = jnp.argmax((inertia <= inertia[least] * (1 + 1e-6)) | (jnp.arange(restarts) == least))
    beyond = jnp.iinfo(ids.dtype).max
    order = jnp.argsort(
        jnp.full(clusters, beyond).at[labels[best]].min(jnp.where(present, ids, beyond))
    )  # by the smallest uid
    names = jnp.argsort(order).astype(jnp.int32)
    chosen = members[best][:, order]
    centres = combine(chosen.T, points, jnp.where(present, 1.0, 0.0))
    return Kmeans(
        jnp.where(present, names[labels[best]], -1), centres, inertia[best] * spread * spread
    )


def _distances(points: jax.Array, present: jax.Array) -> tuple[Distance, jax.Array]:
    """Return the function that computes distances of points to centres, and the spread f32[] of the
    points. Points are shifted by their mean and divided by the spread, so distances are in units of
    the spread."""
    ones = jnp.where(present, 1.0, 0.0)
    mean = combine((ones / jnp.maximum(ones.sum(), 1.0))[None, :], points, ones)[0]
    spread = jnp.where(present[:, None], jnp.abs(points - mean), 0.0).max(initial=0.0)
    resolved = spread > 1e-6 * jnp.abs(mean).max(
        initial=0.0
    )  # else the points agree up to rounding
    scale = jnp.where(present & resolved, invert(spread), 0.0)
    if points.shape[1] <= MAX_DIRECT_LENGTH:
        near = jnp.where(scale[:, None] > 0, (points - mean) * scale[:, None], 0.0)
        return lambda members: squared_distances(
            near, jnp.matmul(members.T, near, precision=HIGHEST)
        ), spread
    if points.shape[0] <= points.shape[1]:
        gram = product(points, points, scale, scale, mean)
        return _by_products(
            lambda members: jnp.matmul(gram, members, precision=HIGHEST), jnp.diagonal(gram)
        ), spread
    near = jnp.where(scale[:, None] > 0, (points - mean) * scale[:, None], 0.0)

    def inner(members: jax.Array) -> jax.Array:
        return jnp.matmul(near, jnp.matmul(near.T, members, precision=HIGHEST), precision=HIGHEST)

    return _by_products(inner, jnp.square(near).sum(axis=1)), spread


def _by_products(inner: Distance, own: jax.Array) -> Distance:
    """‖x‖² − 2 x·c + ‖c‖² from x·c = inner(members); values below the rounding error count as 0."""

    def distance(members: jax.Array) -> jax.Array:
        dot = inner(members)
        sizes = own[:, None] + (members * dot).sum(axis=0)[None, :]
        square = sizes - 2 * dot
        return jnp.where(square > 1e-6 * sizes, square, 0.0)

    return distance


def _plus_plus(
    key: jax.Array,
    distance: Distance,
    present: jax.Array,
    ids: jax.Array,
    clusters: int,
    by: jax.Array | None = None,
) -> jax.Array:
    """f32[n, K] one-hot columns: the first point at random, each further one the best of a few
    drawn by distance."""
    n = present.shape[0]
    trials = 2 + int(math.log(clusters))
    numbers = jnp.arange(trials, dtype=jnp.int32)

    def draw(number: jax.Array, weight: jax.Array) -> jax.Array:
        luck = jax.vmap(lambda trial: _gumbel(key, number * trials + trial, ids), out_axes=1)(
            numbers
        )
        weight = jnp.where(weight.max() > 0, weight, 1.0)  # all points are at distance 0
        odds = jnp.where(
            present & (weight > 0), jnp.log(jnp.where(weight > 0, weight, 1.0)), -jnp.inf
        )
        return jnp.argmax(odds[:, None] + luck, axis=0)

    def add(number: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        members, closest = state
        drawn = draw(number, _weighted(jnp.where(number == 0, 1.0, closest), by))
        after = jnp.minimum(
            closest[:, None], distance(jax.nn.one_hot(drawn, n, dtype=jnp.float32).T)
        )
        left = _weighted(jnp.where(present[:, None], after, 0.0), by).sum(axis=0)
        best = jnp.where(
            number == 0, 0, jnp.argmin(left)
        )  # the first centre is the first point drawn
        return members.at[drawn[best], number].set(1.0), after[:, best]

    start = (jnp.zeros((n, clusters), jnp.float32), jnp.full(n, jnp.inf, jnp.float32))
    return jax.lax.fori_loop(0, clusters, add, start)[0]


def _gumbel(key: jax.Array, number: jax.Array, ids: jax.Array) -> jax.Array:
    """f32[n] Gumbel noise, one number per identity. A folded key is a hash of the identity: its
    bits are the draw."""
    bits = jax.random.key_data(keys.fold_in(keys.fold_in(key, number), ids))[:, 0]
    uniform = (bits >> 9).astype(jnp.float32) * 2.0**-23 + 2.0**-24
    return -jnp.log(-jnp.log(uniform))


def _lloyd(
    distance: Distance,
    members: jax.Array,
    present: jax.Array,
    max_iter: int | jax.Array,
    by: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """labels i32[n], members f32[n, K] and inertia once no label changes, or after max_iter
    rounds."""

    def assign(members: jax.Array) -> tuple[jax.Array, jax.Array]:
        apart = distance(members)
        return jnp.argmin(apart, axis=1).astype(jnp.int32), jnp.where(
            present, apart.min(axis=1), 0.0
        )

    def step(state: _State) -> _State:
        labels, members, count, _ = state
        assigned, distances = assign(members)
        after = _refill(assigned, distances, present, members.shape[1])
        belongs = (after[:, None] == jnp.arange(members.shape[1])) & present[:, None]
        mass = _weighted(belongs, by)
        size = mass.sum(axis=0)
        mean = mass / jnp.maximum(size, 1)
        return after, jnp.where(size > 0, mean, members), count + 1, (after != labels).any()

    start = (jnp.full(present.shape, -1, jnp.int32), members, jnp.int32(0), jnp.bool_(True))
    _, members, _, _ = jax.lax.while_loop(lambda s: s[3] & (s[2] < max_iter), step, start)
    labels, distances = assign(members)
    return labels, members, _weighted(distances, by).sum()


def _weighted(each: jax.Array, by: jax.Array | None) -> jax.Array:
    """Return the rows f32[n, …] times their weights f32[n]; None: as they are."""
    return each if by is None else each * by.reshape(-1, *[1] * (each.ndim - 1))


def _refill(
    labels: jax.Array, distances: jax.Array, present: jax.Array, clusters: int
) -> jax.Array:
    """Labels with the j-th empty cluster moved to the j-th farthest point, as long as those are
    away from their centres."""
    n = labels.shape[0]
    numbers = jnp.arange(clusters, dtype=jnp.int32)
    empty = ~((labels[:, None] == numbers) & present[:, None]).any(axis=0)
    reach, far = jax.lax.top_k(distances, min(clusters, n))
    place = jnp.minimum(jnp.cumsum(empty) - 1, far.shape[0] - 1)
    possible = empty & (jnp.cumsum(empty) <= far.shape[0]) & (reach[place] > 0)
    return labels.at[jnp.where(possible, far[place], n)].set(numbers, mode="drop")
