"""Convolution, pooling, normalisation and LSTM layers as functions of arrays."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator

from cfljax.lazy import custom_jvp, custom_vjp, jax, jnp
from cfljax.models import blocks
from cfljax.models.blocks import Around, convolve_by_xla, padding_of

CONVOLUTIONS = ("auto", "patches", "native", "windows")
# Floats of shifted images that are held at a time for the gradient of a kernel, but at least one
# image's: half a megabyte, which stays in the cache. If the kernel has more numbers than that, as
# many as the kernel: each tile reads and writes all of its gradient
GRADIENT_TILE_FLOATS = 1 << 17
# XLA's convolution on a CPU is slow for few outputs, so neighbouring pixels are computed together:
# as many as have MAX_JOINED_OUTPUTS / 2 outputs, or MAX_JOINED_OUTPUTS where a pixel has at most
# FEW_INPUTS numbers (measured: 0.2 to 0.6 of the time)
MAX_JOINED_OUTPUTS = 64
FEW_INPUTS = 8


def convolve(
    x: jax.Array,
    kernel: jax.Array,
    form: str,
    pooled: bool = False,
    stride: int = 1,
    padding: str = "same",
) -> jax.Array:
    """Convolve images.

    Args:
      x: f32[B, H, W, inputs].
      kernel: f32[k, k, inputs, outputs].
      form: "native" is XLA's own; "patches" computes the gradient of the kernel by matrix products
        of shifted images, and "windows" everything by matrix products. "auto" is "patches" on a
        CPU, where the gradient of XLA's own convolution is some hundred times slower inside a loop,
        "windows" on an NVIDIA GPU, where XLA's own convolutions of several clients take longer, and
        otherwise "native".
      pooled: Whether `pool_2_2` follows.
      stride: Every how many pixels.
      padding: "same", or "valid", which has no strides.

    Returns:
      f32[B, ⌈H / stride⌉, ⌈W / stride⌉, outputs] before pooling; with the padding "valid" f32[B,
      H - k + 1, W - k + 1, outputs].
    """
    if form == "auto":
        forms = {
            each: functools.partial(
                convolve, form=each, pooled=pooled, stride=stride, padding=padding
            )
            for each in CONVOLUTIONS[1:]
        }
        return jax.lax.platform_dependent(
            x, kernel, cpu=forms["patches"], cuda=forms["windows"], default=forms["native"]
        )
    if form == "native":
        outputs = convolve_by_xla(x, kernel, (stride, stride), padding_of(kernel, padding))
    elif form == "windows":
        outputs = blocks.convolve_windows(x, kernel, stride, padding)
    else:
        outputs = _convolve_xla(x, kernel, stride, padding)
    return pool_2_2(outputs) if pooled else outputs


@custom_vjp()
def multiply_pixels(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve single pixels: f32[B, H, W, inputs] times f32[inputs, outputs]."""
    return x @ kernel


def _gradients_of_pixels(
    kept: tuple[jax.Array, jax.Array], change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return change @ kernel.T, _kernel_gradient(x, change)


multiply_pixels.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _gradients_of_pixels)


def _kernel_gradient(x: jax.Array, change: jax.Array) -> jax.Array:
    """Sum the products of f32[..., a] and f32[..., b] over all other axes: f32[a, b]."""
    # The barrier keeps XLA from turning the product, for which it would turn the images first
    return jax.lax.optimization_barrier(
        x.reshape(-1, x.shape[-1]).T @ change.reshape(-1, change.shape[-1])
    )


@custom_vjp(nondiff_argnums=(2, 3))
def _convolve_xla(x: jax.Array, kernel: jax.Array, stride: int, padding: str) -> jax.Array:
    """Convolve by XLA, and compute the gradient by other means."""
    if stride > 1 and padding == "valid":
        raise NotImplementedError("the gradient of a strided convolution needs padding")
    return _convolve_pixels(x, kernel, stride, padding_of(kernel, padding))


def _convolve_pixels(x: jax.Array, kernel: jax.Array, stride: int, around: Around) -> jax.Array:
    """Convolve by XLA, several neighbouring pixels of a row at a time."""
    rows, columns, inputs, outputs = kernel.shape
    height = (x.shape[1] + sum(around[0]) - rows) // stride + 1
    width = (x.shape[2] + sum(around[1]) - columns) // stride + 1
    joined_outputs = MAX_JOINED_OUTPUTS if inputs <= FEW_INPUTS else MAX_JOINED_OUTPUTS // 2
    most = max(1, joined_outputs // outputs)
    pixels = next(n for n in range(most, 0, -1) if width % n == 0)

    def convolve_one(x: jax.Array, kernel: jax.Array) -> jax.Array:
        # The kernel for the first of the pixels, for the second one to the right of it, …
        moved = [
            jnp.pad(kernel, ((0, 0), (n * stride, (pixels - 1 - n) * stride), (0, 0), (0, 0)))
            for n in range(pixels)
        ]
        joined = jnp.concatenate(moved, -1)
        found = convolve_by_xla(x, joined, (stride, stride * pixels), around)
        return found.reshape(-1, height, width, outputs)

    def convolve_several(
        _: int, mapped: list[bool], x: jax.Array, kernel: jax.Array
    ) -> tuple[jax.Array, bool]:
        if not mapped[1]:
            return jax.vmap(convolve_one, (0, None))(x, kernel), True
        # Of several kernels XLA would make a convolution in groups, which takes twice as long
        # (measured)
        if mapped[0]:
            return jax.lax.map(lambda own: convolve_one(own[0], own[1]), (x, kernel)), True
        return jax.lax.map(lambda own: convolve_one(x, own[0]), (kernel,)), True

    convolve = jax.custom_batching.custom_vmap(convolve_one)
    convolve.def_vmap(convolve_several)
    return convolve(x, kernel)


def _gradients(
    stride: int, padding: str, kept: tuple[jax.Array, jax.Array], change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the gradients of `_convolve_xla` by x and the kernel."""
    x, kernel = kept
    # With the pixels of a square as channels of one pixel, every stride is one
    small, back = jax.vjp(lambda kernel: _kernel_in_squares(kernel, stride), kernel)
    (top, bottom), (first, last) = padding_of(kernel, padding)
    above, below = -(-top // stride), bottom // stride
    left, right = -(-first // stride), last // stride
    rows, columns, inputs, outputs = small.shape
    height = change.shape[1]
    width = -(-x.shape[2] // stride)
    # From the pixels of the outputs back to each pixel of x: what the kernel reaches beyond them
    back_rows = rows - 1 - above, rows - 1 - below
    back_columns = columns - 1 - left, columns - 1 - right

    batch, together = _count_tiles(
        len(x), height * width * (rows * inputs + columns * outputs), kernel.size
    )
    all_images = jnp.pad(x, ((0, batch - len(x)), (0, 0), (0, 0), (0, 0)))
    all_changes = jnp.pad(change, ((0, batch - len(change)), (0, 0), (0, 0), (0, 0)))

    # Shifts of x along columns and of the change along rows are as many products as k · k shifts of
    # x, and hold 2 k shifted images instead of k · k
    def tile(number: jax.Array, total: jax.Array) -> jax.Array:
        images = jax.lax.dynamic_slice_in_dim(all_images, number * together, together)
        change = jax.lax.dynamic_slice_in_dim(all_changes, number * together, together)
        images = jnp.pad(_to_squares(images, stride), ((0, 0), (above, below), (0, 0), (0, 0)))
        change = jnp.pad(change, ((0, 0), (0, 0), back_columns, (0, 0)))
        down = [images[:, i : i + height] for i in range(rows)]
        along = [change[:, :, j : j + width] for j in reversed(range(columns))]
        return total + _kernel_gradient(jnp.concatenate(down, -1), jnp.concatenate(along, -1))

    nothing = jnp.zeros((rows * inputs, columns * outputs), kernel.dtype)
    of_small = jax.lax.fori_loop(0, batch // together, tile, nothing)
    of_small = of_small.reshape(rows, inputs, columns, outputs).swapaxes(1, 2)
    of_x = _convolve_pixels(
        change, jnp.swapaxes(small[::-1, ::-1], 2, 3), 1, (back_rows, back_columns)
    )
    return _from_squares(of_x, stride)[:, : x.shape[1], : x.shape[2]], back(of_small)[0]


_convolve_xla.defvjp(
    lambda x, kernel, stride, padding: (
        _convolve_pixels(x, kernel, stride, padding_of(kernel, padding)),
        (x, kernel),
    ),
    _gradients,
)


def _to_squares(x: jax.Array, stride: int) -> jax.Array:
    """Reshape squares of stride · stride pixels to one pixel, zeros outside: for these a stride is
    one."""
    if stride == 1:
        return x
    x = jnp.pad(x, ((0, 0), *((0, -side % stride) for side in x.shape[1:3]), (0, 0)))
    return jnp.concatenate(
        [x[:, i::stride, j::stride] for i in range(stride) for j in range(stride)], -1
    )


def _from_squares(x: jax.Array, stride: int) -> jax.Array:
    batch, high, wide, _ = x.shape
    x = x.reshape(batch, high, wide, stride, stride, -1).swapaxes(2, 3)
    return x.reshape(batch, high * stride, wide * stride, -1)


def _kernel_in_squares(kernel: jax.Array, stride: int) -> jax.Array:
    if stride == 1:
        return kernel
    gaps = [(-first % stride, stride - 1 - last % stride) for first, last in padding_of(kernel)]
    kernel = jnp.pad(kernel, (*gaps, (0, 0), (0, 0)))
    rows, columns, _, outputs = kernel.shape
    kernel = kernel.reshape(
        rows // stride, stride, columns // stride, stride, -1, outputs
    ).swapaxes(1, 2)
    return kernel.reshape(rows // stride, columns // stride, -1, outputs)


def _count_tiles(batch: int, size: int, least: int) -> tuple[int, int]:
    """Return the padded number of images, and the images per tile: as many of this size as fit into
    GRADIENT_TILE_FLOATS or `least`."""
    fewest = -(-batch // max(1, max(GRADIENT_TILE_FLOATS, least) // size))
    # The least padding
    number = min(range(fewest, 3 * fewest), key=lambda n: -(-batch // n) * n)
    together = -(-batch // number)
    return number * together, together


@custom_vjp()
def pool_2_2(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2 × 2 square, f32[B, H // 2, W // 2, c], odd ends left out. A tie's
    gradient goes to the first."""
    return _find_largest(x)[0]


def _find_largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the maximum of each 2 × 2 square, and its position in it, i32 of the same shape."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(
        batch, height // 2, 2, width // 2, 2, channels
    )
    a, b = x[:, :, 0, :, 0], x[:, :, 0, :, 1]
    c, d = x[:, :, 1, :, 0], x[:, :, 1, :, 1]
    most = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    return most, jnp.where(a == most, 0, jnp.where(b == most, 1, jnp.where(c == most, 2, 3)))


def _scatter_largest(change: jax.Array, which: jax.Array, size: tuple[int, ...]) -> jax.Array:
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
    lambda x: (_find_largest(x)[0], (_find_largest(x)[1], x)),
    lambda kept, change: (_scatter_largest(change, kept[0], kept[1].shape[1:3]),),
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


def local_response(
    x: jax.Array, radius: int = 4, alpha: float = 0.001 / 9, beta: float = 0.75
) -> jax.Array:
    """Normalise over neighbouring channels, with the numbers of TensorFlow's CIFAR-10 tutorial."""
    channel = jnp.arange(x.shape[-1])
    near = (jnp.abs(channel[:, None] - channel) <= radius).astype(x.dtype)
    return x * (1 + alpha * ((x * x) @ near)) ** -beta


def lstm(
    x: jax.Array, kernel: jax.Array, recurrent: jax.Array, bias: jax.Array, forget_bias: float
) -> jax.Array:
    """Run an LSTM layer with one bias per gate: f32[B, T, inputs] -> f32[B, T, h]; kernel
    f32[inputs, 4h], recurrent f32[h, 4h], bias f32[4h], the gates in the order input, forget, cell,
    output."""
    width = recurrent.shape[0]
    # All steps in one product; f32[T, B, 4h]
    driven = jnp.swapaxes(x @ kernel + bias, 0, 1)

    def step(
        carry: tuple[jax.Array, jax.Array], drive: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = carry
        enter, forget, new, leave = jnp.split(drive + hidden @ recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + forget_bias) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((x.shape[0], width), driven.dtype)
    return jnp.swapaxes(jax.lax.scan(step, (start, start), driven)[1], 0, 1)


# Kernels of at most this many outputs are thin. Measured (784 inputs): transposed halves the time
# at 20, not at 64
MAX_THIN_OUTPUTS = 32
_by_rows: contextvars.ContextVar[bool] = contextvars.ContextVar("by_rows", default=False)


def is_thin(shape: tuple[int, ...]) -> bool:
    """Return True if a kernel of this shape is stored transposed while a client trains
    (`local.turned`)."""
    return len(shape) == 2 and shape[1] <= min(MAX_THIN_OUTPUTS, shape[0] // 4)


@contextlib.contextmanager
def by_rows() -> Iterator[None]:
    """Compute gradients of dense layers from rows in memory: XLA's product over first axes takes a
    CPU half as long again."""
    token = _by_rows.set(True)
    try:
        yield
    finally:
        _by_rows.reset(token)


def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiply x f32[B, inputs] by f32[inputs, outputs], in the form that `by_rows` sets."""
    return dense_product(x, kernel) if _by_rows.get() else x @ kernel


@custom_jvp()
def dense_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiply x f32[B, inputs] by f32[inputs, outputs]."""
    return x @ kernel


@dense_product.defjvp
def _(
    primals: tuple[jax.Array, jax.Array], changes: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (x, kernel), (dx, dkernel) = primals, changes
    # Transposed, this is the gradient of the kernel: the barriers keep XLA from undoing the turns,
    # and so from the slow product
    if is_thin(kernel.shape):
        change = jax.lax.optimization_barrier(jnp.matmul(dkernel.T, x.T)).T
    else:
        change = jax.lax.dot_general(
            jax.lax.optimization_barrier(x.T), dkernel, (((0,), (0,)), ((), ()))
        )
    return x @ kernel, dx @ kernel + change
