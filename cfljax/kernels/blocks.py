"""Products of tall and wide matrices in blocks of columns, so that memory stays bounded by one
block however many parameters d a model has. Rows that are masked or not finite count as zero
vectors."""

from __future__ import annotations

from collections.abc import Callable

from cfljax.lazy import chex, jax, jnp

# GPUs and TPUs otherwise round the factors of a float32 product to fewer bits, and which cluster is
# nearest would depend on the device
HIGHEST = "highest"
# The number of columns in a block: a copy of one block of a few hundred rows fits into a cache
BLOCK_COLUMNS = 4096


def usable_rows(x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Return which rows of x f32[n, d] are finite and not masked (mask bool[n]): bool[n]."""
    finite = jnp.isfinite(x).all(axis=1)
    return finite if mask is None else finite & mask


def row_scale(x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Return the scale s f32[n] of each row of x f32[n, d] with max |s · x| = 1; 0 for zero, masked
    and non-finite rows. Squares of scaled rows neither overflow nor vanish."""
    return invert(jnp.where(usable_rows(x, mask), jnp.abs(x).max(axis=1, initial=0.0), 0.0))


def invert(value: jax.Array) -> jax.Array:
    """Return 1 / value; 0 where value is 0, and finite for every finite value ≥ 0."""
    least = jnp.finfo(jnp.float32).tiny
    # 1 / value is subnormal for the largest numbers, and devices that flush these to 0 would take
    # the row for a zero vector
    return jnp.where(value > 0, jnp.maximum(1.0 / jnp.maximum(value, least), least), 0.0)


def product(
    a: jax.Array,
    b: jax.Array,
    a_scale: jax.Array,
    b_scale: jax.Array,
    shift: jax.Array | None = None,
) -> jax.Array:
    """Return f32[n, m] (s_a · (a − shift)) @ (s_b · (b − shift)).T.

    Args:
      a: f32[n, d].
      b: f32[m, d].
      a_scale: f32[n]; a row with scale 0 is left out, whatever it holds.
      b_scale: f32[m].
      shift: f32[d], or None for no shift.
    """
    chex.assert_rank([a, b], 2)
    chex.assert_equal_shape_suffix([a, b], 1)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        left = _scale_block(a, a_scale, shift, start, size)
        right = _scale_block(b, b_scale, shift, start, size)
        return jnp.matmul(left, right.T, precision=HIGHEST)

    return sum_blocks(partial, a.shape[1], jnp.zeros((a.shape[0], b.shape[0]), jnp.float32))


def combine(weights: jax.Array, x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return f32[r, d]: weights f32[r, n] @ (scale f32[n] · x f32[n, d])."""
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
    if d % BLOCK_COLUMNS == 0:
        return out
    done = whole * BLOCK_COLUMNS
    return out.at[:, done:].set(part(done, d % BLOCK_COLUMNS))


def squared_distances(points: jax.Array, centres: jax.Array) -> jax.Array:
    """Return f32[n, K] squared distances of points f32[n, d] to centres f32[K, d]. They come from
    differences, which keep the digits of close pairs, without an n × K × d array."""
    chex.assert_rank([points, centres], 2)
    chex.assert_equal_shape_suffix([points, centres], 1)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        x = jax.lax.dynamic_slice_in_dim(points, start, size, axis=1)
        c = jax.lax.dynamic_slice_in_dim(centres, start, size, axis=1)
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
    if length % BLOCK_COLUMNS == 0:
        return total
    return total + partial(whole * BLOCK_COLUMNS, length % BLOCK_COLUMNS)


def _scale_block(
    x: jax.Array, scale: jax.Array, shift: jax.Array | None, start: jax.Array | int, size: int
) -> jax.Array:
    block = jax.lax.dynamic_slice_in_dim(x, start, size, axis=1)
    if shift is not None:
        block = block - jax.lax.dynamic_slice_in_dim(shift, start, size)
    # `where`, as 0 · NaN would be NaN
    return jnp.where(scale[:, None] > 0, block * scale[:, None], 0.0)
