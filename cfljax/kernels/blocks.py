"""Products of tall and wide matrices in blocks of columns, so that memory stays bounded by one
block however many parameters d a model has. Rows that are masked or not finite count as zero
vectors."""

from __future__ import annotations

from collections.abc import Callable

from cfljax.lazy import chex, jax, jnp

HIGHEST = "highest"
BLOCK_COLUMNS = 4096


def usable_rows(x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """bool[n]: rows of x f32[n, d] that are finite and not masked."""
    finite = jnp.isfinite(x).all(axis=1)
    return finite if mask is None else finite & mask


def row_scale(x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """f32[n] s with max |s · x| = 1 in each row, 0 for zero, masked and non-finite rows: squares
    stay in range."""
    return invert(jnp.where(usable_rows(x, mask), jnp.abs(x).max(axis=1, initial=0.0), 0.0))


def invert(value: jax.Array) -> jax.Array:
    """1 / value, 0 where value is 0, and finite for every finite value ≥ 0."""
    least = jnp.finfo(jnp.float32).tiny
    return jnp.where(value > 0, jnp.maximum(1.0 / jnp.maximum(value, least), least), 0.0)


def product(
    a: jax.Array,
    b: jax.Array,
    a_scale: jax.Array,
    b_scale: jax.Array,
    shift: jax.Array | None = None,
) -> jax.Array:
    """f32[n, m] = (s_a · (a − shift)) @ (s_b · (b − shift)).T for a f32[n, d], b f32[m, d], scales
    f32[n], f32[m] (a row with scale 0 is left out, whatever it holds) and shift f32[d]."""
    chex.assert_rank([a, b], 2)
    chex.assert_equal_shape_suffix([a, b], 1)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        cut = [
            _scale_block(x, scale, shift, start, size) for x, scale in ((a, a_scale), (b, b_scale))
        ]
        return jnp.matmul(cut[0], cut[1].T, precision=HIGHEST)

    return sum_blocks(partial, a.shape[1], jnp.zeros((a.shape[0], b.shape[0]), jnp.float32))


def combine(weights: jax.Array, x: jax.Array, scale: jax.Array) -> jax.Array:
    """f32[r, d] = weights f32[r, n] @ (scale · x f32[n, d])."""
    chex.assert_rank([weights, x], 2)
    d = x.shape[1]

    def part(start: jax.Array | int, size: int) -> jax.Array:
        return jnp.matmul(weights, _scale_block(x, scale, None, start, size), precision=HIGHEST)

    if d <= BLOCK_COLUMNS:
        return part(0, d)
    whole = d // BLOCK_COLUMNS

    def write(i: jax.Array, out: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(
            out, part(i * BLOCK_COLUMNS, BLOCK_COLUMNS), (0, i * BLOCK_COLUMNS)
        )

    out = jax.lax.fori_loop(0, whole, write, jnp.zeros((weights.shape[0], d), jnp.float32))
    return (
        out
        if d % BLOCK_COLUMNS == 0
        else out.at[:, whole * BLOCK_COLUMNS :].set(part(whole * BLOCK_COLUMNS, d % BLOCK_COLUMNS))
    )


def squared_distances(points: jax.Array, centres: jax.Array) -> jax.Array:
    """f32[n, K] squared distances of points f32[n, d] to centres f32[K, d], from differences,
    without an n × K × d array."""
    chex.assert_rank([points, centres], 2)
    chex.assert_equal_shape_suffix([points, centres], 1)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        x, c = (jax.lax.dynamic_slice_in_dim(v, start, size, axis=1) for v in (points, centres))
        return jax.lax.map(lambda row: jnp.square(x - row).sum(axis=1), c).T

    return sum_blocks(
        partial, points.shape[1], jnp.zeros((points.shape[0], centres.shape[0]), jnp.float32)
    )


def sum_blocks(
    partial: Callable[[jax.Array | int, int], jax.Array], length: int, zero: jax.Array
) -> jax.Array:
    """Sum `partial(start, size)` over the blocks of an axis of that length."""
    if length <= BLOCK_COLUMNS:
        return partial(0, length) if length else zero
    whole = length // BLOCK_COLUMNS
    total = jax.lax.fori_loop(
        0, whole, lambda i, acc: acc + partial(i * BLOCK_COLUMNS, BLOCK_COLUMNS), zero
    )
    return (
        total
        if length % BLOCK_COLUMNS == 0
        else total + partial(whole * BLOCK_COLUMNS, length % BLOCK_COLUMNS)
    )


def _scale_block(
    x: jax.Array, scale: jax.Array, shift: jax.Array | None, start: jax.Array | int, size: int
) -> jax.Array:
    cut = jax.lax.dynamic_slice_in_dim(x, start, size, axis=1)
    if shift is not None:
        cut = cut - jax.lax.dynamic_slice_in_dim(shift, start, size)
    return jnp.where(scale[:, None] > 0, cut * scale[:, None], 0.0)
