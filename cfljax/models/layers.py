"""Convolution, normalisation, LSTM and dense layers as functions of arrays."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

from cfljax.lazy import custom_jvp, custom_vjp, jax, jnp
from cfljax.models import blocks, winograd
from cfljax.models.blocks import Around, convolve_by_xla, padding_of
from cfljax.models.pooling import find_largest, pool_2_2, scatter_largest
from cfljax.models.tiles import count_tiles, join_images, one_by_one, split_images

CONVOLUTIONS = ("auto", "patches", "native", "windows")
# Floats of shifted images that are held at a time for the gradient of a kernel, but at least one
# image's: half a megabyte, which stays in the cache. If the kernel has more numbers than that, as
# many as the kernel: each tile reads and writes all of its gradient
GRADIENT_TILE_FLOATS = 1 << 17
# Floats of outputs that are held at a time until they are pooled: half a megabyte
POOLED_TILE_FLOATS = 1 << 17
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
    elif pooled and stride == 1:
        if padding == "same" and winograd.fits(x, kernel):
            return winograd.convolve_pooled(x, kernel)
        return _convolve_pooled(x, kernel, padding)
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
        if not any(mapped):
            # As in `one_by_one`
            return convolve_one(x, kernel), False
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
    around = (-(-top // stride), bottom // stride), (-(-first // stride), last // stride)

    def read(images: jax.Array, change: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _to_squares(images, stride), change

    of_x = _from_squares(_gradient_of_images(small, around, change), stride)
    of_small = _gradient_of_kernel(small, around, read, x, change)
    return of_x[:, : x.shape[1], : x.shape[2]], back(of_small)[0]


def _gradient_of_images(kernel: jax.Array, around: Around, change: jax.Array) -> jax.Array:
    """Compute the gradient of a convolution of stride one by its images, f32[B, H, W, inputs], from
    that of its outputs, f32[B, H', W', outputs]."""
    rows, columns = kernel.shape[:2]
    (above, below), (left, right) = around
    # From the pixels of the outputs back to each pixel of x: what the kernel reaches beyond them
    back_around = (rows - 1 - above, rows - 1 - below), (columns - 1 - left, columns - 1 - right)
    return _convolve_pixels(change, jnp.swapaxes(kernel[::-1, ::-1], 2, 3), 1, back_around)


def _gradient_of_kernel(
    kernel: jax.Array,
    around: Around,
    read: Callable[..., tuple[jax.Array, jax.Array]],
    *given: jax.Array,
) -> jax.Array:
    """Compute the gradient of a convolution of stride one by its kernel, a few images at a time.

    Args:
      kernel: f32[rows, columns, inputs, outputs], of which the shape counts.
      around: The zeros around the images.
      read: Tiles of the arrays in `given` -> the images f32[m, H, W, inputs], and the gradient of
        their outputs f32[m, H', W', outputs].
      given: Arrays with a row for each image, [B, ...].
    """
    rows, columns, inputs, outputs = kernel.shape
    (above, below), (left, right) = around
    images, change = jax.eval_shape(read, *given)
    height = change.shape[1]
    width = images.shape[2]
    number, together = _count_gradient_tiles(
        len(images), height * width * (rows * inputs + columns * outputs), kernel.size
    )
    # Slices of whole arrays: as arrays of a `scan`, tiles take ResNet-20 a ninth longer
    padded = [join_images(split_images(each, number), number * together) for each in given]

    # Shifts of x along columns and of the change along rows are as many products as k · k shifts of
    # x, and hold 2 k shifted images instead of k · k
    def add_tile(tile: jax.Array, total: jax.Array) -> jax.Array:
        images, change = read(
            *(jax.lax.dynamic_slice_in_dim(each, tile * together, together) for each in padded)
        )
        images = jnp.pad(images, ((0, 0), (above, below), (0, 0), (0, 0)))
        change = jnp.pad(
            change, ((0, 0), (0, 0), (columns - 1 - left, columns - 1 - right), (0, 0))
        )
        down = [images[:, i : i + height] for i in range(rows)]
        along = [change[:, :, j : j + width] for j in reversed(range(columns))]
        of_tile = _kernel_gradient(jnp.concatenate(down, -1), jnp.concatenate(along, -1))
        return total + of_tile

    nothing = jnp.zeros((rows * inputs, columns * outputs), kernel.dtype)
    total = jax.lax.fori_loop(0, number, add_tile, nothing)
    return total.reshape(rows, inputs, columns, outputs).swapaxes(1, 2)


def _count_gradient_tiles(batch: int, size: int, least: int) -> tuple[int, int]:
    """Return the number of tiles, and the images per tile: as many of this size as fit into
    GRADIENT_TILE_FLOATS or `least`."""
    return count_tiles(batch, max(GRADIENT_TILE_FLOATS, least) // size)


_convolve_xla.defvjp(
    lambda x, kernel, stride, padding: (
        _convolve_pixels(x, kernel, stride, padding_of(kernel, padding)),
        (x, kernel),
    ),
    _gradients,
)


@custom_vjp(nondiff_argnums=(2,))
def _convolve_pooled(x: jax.Array, kernel: jax.Array, padding: str) -> jax.Array:
    """Convolve by XLA and pool, a few images at a time, so that the outputs stay in the cache and
    only their maxima are kept."""
    return _forward_pooled(x, kernel, padding)[0]


def _forward_pooled(
    x: jax.Array, kernel: jax.Array, padding: str
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    around = padding_of(kernel, padding)

    def convolve(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
        def convolve_tile(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            most, which = find_largest(_convolve_pixels(x, kernel, 1, around))
            return most, which.astype(jnp.uint8)

        most, which = jax.lax.map(convolve_tile, split_images(x, _count_pooled_tiles(x, kernel)))
        return join_images(most, len(x)), join_images(which, len(x))

    most, which = one_by_one(convolve)(x, kernel)
    return most, (x, kernel, which)


def _backward_pooled(
    padding: str, kept: tuple[jax.Array, jax.Array, jax.Array], change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel, _ = kept
    around = padding_of(kernel, padding)
    size = tuple(
        side + sum(zeros) - length + 1
        for side, zeros, length in zip(x.shape[1:3], around, kernel.shape[:2], strict=True)
    )

    def read(images: jax.Array, change: jax.Array, which: jax.Array) -> tuple[jax.Array, jax.Array]:
        return images, scatter_largest(change, which, size)

    def gradients(
        x: jax.Array, kernel: jax.Array, which: jax.Array, change: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        def convolve_tile(tile: tuple[jax.Array, jax.Array]) -> jax.Array:
            return _gradient_of_images(kernel, around, scatter_largest(*tile, size))

        number = _count_pooled_tiles(x, kernel)
        tiles = split_images(change, number), split_images(which, number)
        of_x = join_images(jax.lax.map(convolve_tile, tiles), len(x))
        return of_x, _gradient_of_kernel(kernel, around, read, x, change, which)

    return one_by_one(gradients)(*kept, change)  # type: ignore[return-value]


_convolve_pooled.defvjp(_forward_pooled, _backward_pooled)


def _count_pooled_tiles(x: jax.Array, kernel: jax.Array) -> int:
    floats = x.shape[1] * x.shape[2] * kernel.shape[3]
    return count_tiles(len(x), POOLED_TILE_FLOATS // floats)[0]


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
