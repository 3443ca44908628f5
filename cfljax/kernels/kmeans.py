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
# members f32[n, K], each column the weights of a mean of points -> f32[n, K] squared distances of
# the points to these means. Centres never exist as f32[K, d] while the algorithm runs
Distance = Callable[[jax.Array], jax.Array]
# (labels, members, iterations done, whether a label changed)
_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


class Kmeans(NamedTuple):
    """The best of the restarts."""

    # i32[n], numbered in the order of their first points by uid; −1 for masked and non-finite
    # points
    labels: jax.Array
    # f32[K, d]
    centres: jax.Array
    # f32[]: the sum of the squared distances of the points to their centres
    inertia: jax.Array


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
    """Cluster points by K-means. As in scikit-learn an emptied cluster is moved to the point
    farthest from its centre, and the restart with the smallest inertia wins (the first of those
    that agree to 1e-6). With fewer distinct points than clusters some clusters stay empty. Long
    points are handled through their n × n products.

    Args:
      key: The random key of the starts.
      points: f32[n, d].
      clusters: K.
      mask: bool[n] which points count; None: all.
      uid: i32[n] ≥ 0, distinct: the points' identities, by which draws go; None: positions.
      restarts: How many starts are tried.
      max_iter: The most iterations of a start.
      weight: f32[n] ≥ 1 how often each point counts; None: once.
    """
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
    # The first restart that is as good as the best up to rounding: which of two equal solutions has
    # the smaller inertia depends on the order of sums. `least` itself covers an inertia of NaN
    least = jnp.argmin(inertia)
    best = jnp.argmax((inertia <= inertia[least] * (1 + 1e-6)) | (jnp.arange(restarts) == least))
    # Clusters are numbered by the smallest uid among their points; empty ones come last
    largest_uid = jnp.iinfo(ids.dtype).max
    first_uid = (
        jnp.full(clusters, largest_uid).at[labels[best]].min(jnp.where(present, ids, largest_uid))
    )
    order = jnp.argsort(first_uid)
    new_index = jnp.argsort(order).astype(jnp.int32)
    chosen = members[best][:, order]
    centres = combine(chosen.T, points, jnp.where(present, 1.0, 0.0))
    return Kmeans(
        jnp.where(present, new_index[labels[best]], -1), centres, inertia[best] * spread * spread
    )


def _distances(points: jax.Array, present: jax.Array) -> tuple[Distance, jax.Array]:
    """Return the function that computes distances of points to centres, and the spread f32[] of the
    points. Points are shifted by their mean and divided by the spread, so distances are in units of
    the spread."""
    ones = jnp.where(present, 1.0, 0.0)
    mean = combine((ones / jnp.maximum(ones.sum(), 1.0))[None, :], points, ones)[0]
    spread = jnp.where(present[:, None], jnp.abs(points - mean), 0.0).max(initial=0.0)
    # Otherwise the points agree up to rounding, and count as one point
    resolved = spread > 1e-6 * jnp.abs(mean).max(initial=0.0)
    scale = jnp.where(present & resolved, invert(spread), 0.0)
    if points.shape[1] <= MAX_DIRECT_LENGTH:
        near = jnp.where(scale[:, None] > 0, (points - mean) * scale[:, None], 0.0)

        def from_differences(members: jax.Array) -> jax.Array:
            return squared_distances(near, jnp.matmul(members.T, near, precision=HIGHEST))

        return from_differences, spread
    if points.shape[0] <= points.shape[1]:
        gram = product(points, points, scale, scale, mean)

        def dot_by_gram(members: jax.Array) -> jax.Array:
            return jnp.matmul(gram, members, precision=HIGHEST)

        return _by_products(dot_by_gram, jnp.diagonal(gram)), spread
    # Many points: n² products would be more than n · d numbers
    near = jnp.where(scale[:, None] > 0, (points - mean) * scale[:, None], 0.0)

    def dot(members: jax.Array) -> jax.Array:
        return jnp.matmul(near, jnp.matmul(near.T, members, precision=HIGHEST), precision=HIGHEST)

    return _by_products(dot, jnp.square(near).sum(axis=1)), spread


def _by_products(dot: Distance, own: jax.Array) -> Distance:
    """Return the function that computes ‖x‖² − 2 x·c + ‖c‖² from x·c = dot(members) and ‖x‖² = own
    f32[n]. Values below the rounding error count as 0."""

    def distance(members: jax.Array) -> jax.Array:
        products = dot(members)
        sizes = own[:, None] + (members * products).sum(axis=0)[None, :]
        square = sizes - 2 * products
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
    """Choose K starting points, the first at random, each further one the best of a few that are
    drawn by squared distance. Return f32[n, K], one-hot columns."""
    n = present.shape[0]
    # As many trials as in scikit-learn
    trials = 2 + int(math.log(clusters))
    trial_index = jnp.arange(trials, dtype=jnp.int32)

    def draw(k: jax.Array, weight: jax.Array) -> jax.Array:
        noise = jax.vmap(lambda trial: _gumbel(key, k * trials + trial, ids), out_axes=1)(
            trial_index
        )
        # If all points are at distance 0, any may be drawn
        weight = jnp.where(weight.max() > 0, weight, 1.0)
        odds = jnp.where(
            present & (weight > 0), jnp.log(jnp.where(weight > 0, weight, 1.0)), -jnp.inf
        )
        return jnp.argmax(odds[:, None] + noise, axis=0)

    def add(k: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        members, closest = state
        drawn = draw(k, _weighted(jnp.where(k == 0, 1.0, closest), by))
        after = jnp.minimum(
            closest[:, None], distance(jax.nn.one_hot(drawn, n, dtype=jnp.float32).T)
        )
        inertia = _weighted(jnp.where(present[:, None], after, 0.0), by).sum(axis=0)
        # The first centre is a random point, not the best of several
        best = jnp.where(k == 0, 0, jnp.argmin(inertia))
        return members.at[drawn[best], k].set(1.0), after[:, best]

    start = (jnp.zeros((n, clusters), jnp.float32), jnp.full(n, jnp.inf, jnp.float32))
    return jax.lax.fori_loop(0, clusters, add, start)[0]


def _gumbel(key: jax.Array, number: jax.Array, ids: jax.Array) -> jax.Array:
    """Draw f32[n] Gumbel noise, one number per identity."""
    # A folded key is a hash of the identity: its bits are the draw, without another pass of the
    # generator for each point
    bits = jax.random.key_data(keys.fold_in(keys.fold_in(key, number), ids))[:, 0]
    # 23 bits, shifted by half a step: uniform is neither 0 nor 1, whose logarithms are infinite
    uniform = (bits >> 9).astype(jnp.float32) * 2.0**-23 + 2.0**-24
    return -jnp.log(-jnp.log(uniform))


def _lloyd(
    distance: Distance,
    members: jax.Array,
    present: jax.Array,
    max_iter: int | jax.Array,
    by: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Iterate until no label changes, or max_iter times. Return labels i32[n], members f32[n, K]
    and the inertia f32[]."""

    def assign(members: jax.Array) -> tuple[jax.Array, jax.Array]:
        to_each = distance(members)
        labels = jnp.argmin(to_each, axis=1).astype(jnp.int32)
        return labels, jnp.where(present, to_each.min(axis=1), 0.0)

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
    """Return the rows f32[n, …] times the weights `by` f32[n]; None: as they are."""
    return each if by is None else each * by.reshape(-1, *[1] * (each.ndim - 1))


def _refill(
    labels: jax.Array, distances: jax.Array, present: jax.Array, clusters: int
) -> jax.Array:
    """Return the labels i32[n] after the j-th empty cluster has been moved to the j-th farthest
    point, as long as these points are away from their centres."""
    n = labels.shape[0]
    index = jnp.arange(clusters, dtype=jnp.int32)
    empty = ~((labels[:, None] == index) & present[:, None]).any(axis=0)
    farthest_distances, farthest = jax.lax.top_k(distances, min(clusters, n))
    rank = jnp.minimum(jnp.cumsum(empty) - 1, farthest.shape[0] - 1)
    possible = empty & (jnp.cumsum(empty) <= farthest.shape[0]) & (farthest_distances[rank] > 0)
    return labels.at[jnp.where(possible, farthest[rank], n)].set(index, mode="drop")
