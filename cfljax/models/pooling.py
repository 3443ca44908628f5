"""Pooling as functions of arrays."""

from __future__ import annotations

from cfljax.lazy import custom_vjp, jax, jnp


@custom_vjp()
def pool_2_2(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2 × 2 square, f32[B, H // 2, W // 2, c], odd ends left out. A tie's
    gradient goes to the first."""
    return find_largest(x)[0]


def find_largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the maximum of each 2 × 2 square, and its position in it, i32 of the same shape."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(
        batch, height // 2, 2, width // 2, 2, channels
    )
    return largest_of(x[:, :, 0, :, 0], x[:, :, 0, :, 1], x[:, :, 1, :, 0], x[:, :, 1, :, 1])


def largest_of(
    a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the largest of four arrays of one shape, and its position among the four, i32 of that
    shape: the first if several are equal."""
    most = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    return most, jnp.where(a == most, 0, jnp.where(b == most, 1, jnp.where(c == most, 2, 3)))


def scatter_largest(change: jax.Array, which: jax.Array, size: tuple[int, ...]) -> jax.Array:
    """Scatter each number to position `which` in its 2 × 2 square, zeros elsewhere, f32[B, H, W,
    c]; `size` is (H, W)."""
    batch, rows, columns, channels = change.shape

    def add_squares(of: jax.Array) -> jax.Array:
        return of[:, :, None, :, None, :]

    index = jnp.arange(4).reshape(1, 2, 1, 2, 1)
    spread = jnp.where(add_squares(which) == index, add_squares(change), 0.0).reshape(
        batch, 2 * rows, 2 * columns, channels
    )
    return jnp.pad(spread, ((0, 0), (0, size[0] - 2 * rows), (0, size[1] - 2 * columns), (0, 0)))


pool_2_2.defvjp(
    lambda x: (find_largest(x)[0], (find_largest(x)[1], x)),
    lambda kept, change: (scatter_largest(change, kept[0], kept[1].shape[1:3]),),
)


def pool_3_2_same(x: jax.Array) -> jax.Array:
    """Take the maximum of 3 × 3 squares at steps of 2, -> f32[B, ⌈H / 2⌉, ⌈W / 2⌉, c], padded as
    TensorFlow's SAME."""
    return _pool_axis(_pool_axis(x, 1), 2)


def _pool_axis(x: jax.Array, axis: int) -> jax.Array:
    size = x.shape[axis]
    out = -(-size // 2)
    missing = max((out - 1) * 2 + 3 - size, 0)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (missing // 2, missing - missing // 2)
    x = jnp.pad(x, widths, constant_values=-jnp.inf)
    first = jax.lax.slice_in_dim(x, 0, 2 * out - 1, 2, axis)
    second = jax.lax.slice_in_dim(x, 1, 2 * out, 2, axis)
    third = jax.lax.slice_in_dim(x, 2, 2 * out + 1, 2, axis)
    return jnp.maximum(jnp.maximum(first, second), third)
