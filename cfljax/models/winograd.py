"""3 × 3 convolutions with 2 × 2 pooling, by Winograd's F(2 × 2, 3 × 3) (Lavin & Gray 2016).

Each square of four outputs depends on a window of 4 × 4 inputs. Inputs, kernel and outputs are
transformed along rows and along columns so that a square takes 16 products in place of 36. A square
is also what pooling takes the maximum of, so that the outputs before pooling are never written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cfljax.lazy import custom_vjp, jax, jnp
from cfljax.models.pooling import largest_of
from cfljax.models.tiles import count_tiles, join_images, one_by_one, split_images

# With fewer channels the transforms take longer than what the products save (measured: 0.7 of the
# time from 32 to 64 channels, 1.45 with 16)
MIN_CHANNELS = 32
# Floats of the transformed outputs that are held at a time: half a megabyte
TILE_FLOATS = 1 << 17

Parts = list[jax.Array]
Grid = Sequence[Sequence[jax.Array]]


def fits(x: jax.Array, kernel: jax.Array) -> bool:
    """Return whether images f32[B, H, W, inputs] and a kernel f32[k, k, inputs, outputs] have the
    shapes for which this form is made. The batch has no say: a client's numbers do not depend on
    it. Half precision would lose digits in the transforms."""
    even = x.shape[1] % 2 == 0 and x.shape[2] % 2 == 0
    wide = min(kernel.shape[2:]) >= MIN_CHANNELS
    return kernel.shape[:2] == (3, 3) and even and wide and x.dtype.itemsize >= 4


@custom_vjp()
def convolve_pooled(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve f32[B, H, W, inputs] with f32[3, 3, inputs, outputs], zeros around, and take the
    maximum of each 2 × 2 square: f32[B, H / 2, W / 2, outputs]."""
    return _forward(x, kernel)[0]


def _forward(
    x: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    most, which = one_by_one(_convolve_and_pool)(x, kernel)
    return most, (x, kernel, which)


def _backward(
    kept: tuple[jax.Array, jax.Array, jax.Array], change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return one_by_one(_compute_gradients)(*kept, change)  # type: ignore[return-value]


convolve_pooled.defvjp(_forward, _backward)


def _convolve_and_pool(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the pooled outputs, and the position of each in its square, u8 of the same shape."""
    _, height, width, _ = x.shape
    factors = _transform_kernel(kernel)

    def convolve_tile(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        products = jnp.einsum("tpi,tio->tpo", _transform_images(x), factors)
        (a, b), (c, d) = _along_both(_to_outputs, _to_grid(products))
        most, which = largest_of(a, b, c, d)
        pooled = (len(x), height // 2, width // 2, -1)
        return most.reshape(pooled), which.astype(jnp.uint8).reshape(pooled)

    most, which = jax.lax.map(convolve_tile, split_images(x, _count(x, kernel)))
    return join_images(most, len(x)), join_images(which, len(x))


def _compute_gradients(
    x: jax.Array, kernel: jax.Array, which: jax.Array, change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the gradients by x and by the kernel, from the gradient `change` of the pooled outputs
    and the positions `which`."""
    batch, height, width, inputs = x.shape
    outputs = kernel.shape[3]
    factors = _transform_kernel(kernel).swapaxes(1, 2)
    tiles = [split_images(each, _count(x, kernel)) for each in (x, which, change)]
    number, together = tiles[0].shape[:2]
    squares = (together, height // 2, width // 2, inputs)

    def tile(
        carry: tuple[jax.Array, jax.Array, jax.Array], of: list[jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        total, of_x, first = carry
        x, which, change = of
        which, change = which.reshape(-1, outputs), change.reshape(-1, outputs)
        spread = [
            [jnp.where(which == 2 * row + column, change, 0.0) for column in (0, 1)]
            for row in (0, 1)
        ]
        of_products = _stack(_along_both(_from_outputs, spread))
        # Transposed before the product, which would transpose it slowly itself
        images = jax.lax.optimization_barrier(_transform_images(x).swapaxes(1, 2))
        total += jnp.einsum("tip,tpo->tio", images, of_products)

        of_images = jnp.einsum("tpo,toi->tpi", of_products, factors).reshape(16, *squares)
        windows = _along_both(_from_inputs, _to_grid(of_images))
        columns = [_overlap(row, 2) for row in windows]
        # Written into place, row by row and column by column of the squares
        for column in (0, 1):
            for row, each in enumerate(_overlap([line[column] for line in columns], 1)):
                of_x = jax.lax.dynamic_update_slice(
                    of_x, each[:, :, None, :, None], (first, 0, row, 0, column, 0)
                )
        return (total, of_x, first + together), None

    nothing = (
        jnp.zeros((16, inputs, outputs), x.dtype),
        jnp.zeros((number * together, height // 2, 2, width // 2, 2, inputs), x.dtype),
        jnp.int32(0),
    )
    (total, of_x, _), _ = jax.lax.scan(tile, nothing, tiles)
    of_kernel = jnp.stack([jnp.stack(row) for row in _along_both(_from_kernel, _to_grid(total))])
    return of_x.reshape(-1, *x.shape[1:])[:batch], of_kernel


def _count(x: jax.Array, kernel: jax.Array) -> int:
    """Return the number of tiles of images."""
    floats = 4 * x.shape[1] * x.shape[2] * max(kernel.shape[2:])
    return count_tiles(len(x), TILE_FLOATS // floats)[0]


def _transform_kernel(kernel: jax.Array) -> jax.Array:
    """f32[3, 3, inputs, outputs] -> f32[16, inputs, outputs]."""
    return _stack(_along_both(_to_kernel, kernel))


def _transform_images(x: jax.Array) -> jax.Array:
    """f32[m, H, W, c] -> f32[16, m · H / 2 · W / 2, c]: the windows of all squares, transformed."""
    _, height, width, channels = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = [[x[:, i : i + height : 2, j : j + width : 2] for j in range(4)] for i in range(4)]
    found = _along_both(_to_inputs, windows)
    return _stack([[each.reshape(-1, channels) for each in row] for row in found])


def _overlap(windows: Parts, axis: int) -> Parts:
    """Add up what overlaps along an axis: the two middle entries of a window of four are a square's
    own; the first belongs to the square before it, the last to the one behind it."""
    zero = [(0, 0)] * windows[0].ndim
    from_before, from_behind = list(zero), list(zero)
    from_before[axis], from_behind[axis] = (1, 0), (0, 1)
    length = windows[0].shape[axis]
    last_of_before = jnp.pad(
        jax.lax.slice_in_dim(windows[3], 0, length - 1, axis=axis), from_before
    )
    first_of_behind = jnp.pad(jax.lax.slice_in_dim(windows[0], 1, length, axis=axis), from_behind)
    return [windows[1] + last_of_before, windows[2] + first_of_behind]


def _along_both(transform: Callable[[Parts], Parts], grid: Grid | jax.Array) -> list[Parts]:
    """Transform each column of a grid of arrays, then each row."""
    columns = [transform([row[j] for row in grid]) for j in range(len(grid[0]))]
    return [transform(list(row)) for row in zip(*columns, strict=True)]


def _to_grid(stacked: jax.Array) -> list[Parts]:
    return [[stacked[4 * i + j] for j in range(4)] for i in range(4)]


def _stack(grid: Grid) -> jax.Array:
    return jnp.stack([each for row in grid for each in row])


# The transforms of Lavin & Gray, section 4.1, along one axis, and their transposes, by which
# gradients go back


def _to_inputs(d: Parts) -> Parts:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _from_inputs(v: Parts) -> Parts:
    return [v[0], v[1] - v[2] + v[3], v[1] + v[2] - v[0], -v[3]]


def _to_kernel(g: Parts) -> Parts:
    return [g[0], 0.5 * (g[0] + g[1] + g[2]), 0.5 * (g[0] - g[1] + g[2]), g[2]]


def _from_kernel(u: Parts) -> Parts:
    both = 0.5 * (u[1] + u[2])
    return [u[0] + both, 0.5 * (u[1] - u[2]), both + u[3]]


def _to_outputs(m: Parts) -> Parts:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


def _from_outputs(y: Parts) -> Parts:
    return [y[0], y[0] + y[1], y[0] - y[1], -y[1]]
