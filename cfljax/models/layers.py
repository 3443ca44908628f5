"""Convolution, pooling, normalisation and LSTM layers as functions of arrays."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

CONVOLUTIONS = ("auto", "patches", "native")
PATCHES = 1 << 17
"""Floats of the patches that are held at a time, but at least one image's: half a megabyte, which stays in the cache (measured: a
whole batch at a time takes 1.4 to 1.6 times as long a step, four times as many patches up to a tenth longer). If the kernel has
more numbers than that, as many as the kernel: each tile reads and writes all of the kernel's gradient."""
WIDE = 4
"""From this ratio of a patch's width to the outputs on, the kernel's gradient is computed faster transposed (measured)."""


def convolve(x: jax.Array, kernel: jax.Array, form: str, pooled: bool = False, stride: int = 1) -> jax.Array:
    """Convolution around every `stride`-th pixel: f32[B, H, W, inputs], f32[k, k, inputs, outputs] -> f32[B, ⌈H / stride⌉,
    ⌈W / stride⌉, outputs], followed by `pool_2_2` if `pooled`. "patches" is a matrix product over the k · k shifted images; "auto"
    takes it where the program is compiled for a CPU, on which the weight gradient of XLA's own convolution is some hundred times
    slower inside a loop."""
    if form == "auto":
        patches, native = (functools.partial(convolve, form=each, pooled=pooled, stride=stride) for each in ("patches", "native"))
        return jax.lax.platform_dependent(x, kernel, cpu=patches, default=native)
    if form == "native":
        around = [((side - 1) // 2, side // 2) for side in kernel.shape[:2]]
        outputs = jax.lax.conv_general_dilated(x, kernel, (stride, stride), around, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return pool_2_2(outputs) if pooled else outputs
    return _by_patches(x, kernel, pooled, stride)


_Kept = tuple[jax.Array, jax.Array, jax.Array | None]
"""x, the kernel, and i32: where each maximum was, if pooled."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _by_patches(x: jax.Array, kernel: jax.Array, pooled: bool, stride: int) -> jax.Array:
    """The convolution of a few images at a time, so that their patches stay in the cache."""
    return _convolved(x, kernel, pooled, stride)[0]


def _convolved(x: jax.Array, kernel: jax.Array, pooled: bool, stride: int) -> tuple[jax.Array, _Kept]:
    """(the convolution, what its gradient needs). The gradient computes the patches again, which is faster than to keep them."""
    rows, columns, _, outputs = kernel.shape

    def tile(images: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        size = (-(-length // stride) for length in images.shape[1:3])
        convolved = (_patches(images, rows, columns, stride) @ kernel.reshape(-1, outputs)).reshape(len(images), *size, outputs)
        return _largest(convolved) if pooled else (convolved, None)

    convolved, which = jax.lax.map(tile, _tiles(x, x, kernel, stride))
    return convolved.reshape(-1, *convolved.shape[2:])[: x.shape[0]], (x, kernel, which)


def _gradients(_pooled: bool, stride: int, kept: _Kept, out: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The gradients of x and of the kernel, from that of the output."""
    x, kernel, which = kept
    rows, columns, inputs, outputs = kernel.shape
    wide = kernel.size >= WIDE * outputs**2
    # where patches of the change are no wider than those of the images, a convolution by the turned kernel takes less than to put
    # the changes of patches back: a step of the layers of a ResNet takes 0.7 to 0.9 of the time (measured). The kernel's gradient
    # from the same patches saves those of the images: 0.73 to 0.9 again of the gradients' time (measured)
    turns = stride == 1 and rows % 2 and columns % 2 and outputs <= inputs
    turned = jnp.swapaxes(kernel[::-1, ::-1], 2, 3).reshape(-1, inputs)

    def tile(total: jax.Array, of: _Kept) -> tuple[jax.Array, jax.Array]:
        images, change, which = of
        image = change if which is None else _at_largest(change, which, images.shape[1:3])
        change = image.reshape(-1, outputs)
        if turns:  # both gradients from the patches of the change
            patches = _patches(image, rows, columns, 1)
            of_kernel = jax.lax.optimization_barrier(images.reshape(-1, inputs).T @ patches)
            return total + of_kernel, (patches @ turned).reshape(images.shape)
        patches, back = jax.vjp(lambda images: _patches(images, rows, columns, stride), images)
        # the barrier keeps XLA from turning the product back
        of_kernel = jax.lax.optimization_barrier(change.T @ patches).T if wide else patches.T @ change
        return total + of_kernel, back(change @ kernel.reshape(-1, outputs).T)[0]

    nothing = jnp.zeros((inputs, kernel.size // inputs) if turns else (kernel.size // outputs, outputs), kernel.dtype)
    of_kernel, of_x = jax.lax.scan(tile, nothing, (_tiles(x, x, kernel, stride), _tiles(out, x, kernel, stride), which))
    if turns:  # it is turned, too: a place of the kernel meets the change on the other side
        of_kernel = jnp.moveaxis(of_kernel.reshape(inputs, rows, columns, outputs)[:, ::-1, ::-1], 0, 2)
    return of_x.reshape(-1, *x.shape[1:])[: x.shape[0]], of_kernel.reshape(kernel.shape)


_by_patches.defvjp(_convolved, _gradients)


def _tiles(values: jax.Array, images: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """[tiles, m, ...] of [B, ...]: m images in each tile, whose patches fit into PATCHES; zeros fill up the last tile."""
    batch, height, width, _ = images.shape
    patches = -(-height // stride) * -(-width // stride) * kernel.size // kernel.shape[-1]
    least = -(-batch // max(1, max(PATCHES, kernel.size) // patches))
    number = min(range(least, 3 * least), key=lambda n: -(-batch // n) * n)  # the least padding
    missing = -batch % number
    padded = jnp.pad(values, ((0, missing), (0, 0), (0, 0), (0, 0))) if missing else values
    return padded.reshape(number, -(-batch // number), *values.shape[1:])


def _patches(x: jax.Array, rows: int, columns: int, stride: int) -> jax.Array:
    """f32[B · ⌈H / stride⌉ · ⌈W / stride⌉, rows · columns · inputs]: the square of pixels around every `stride`-th pixel."""
    _, height, width, inputs = x.shape
    x = jnp.pad(x, ((0, 0), ((rows - 1) // 2, rows // 2), ((columns - 1) // 2, columns // 2), (0, 0)))
    shifted = [x[:, i : i + height : stride, j : j + width : stride] for i in range(rows) for j in range(columns)]
    return jnp.concatenate(shifted, axis=-1).reshape(-1, rows * columns * inputs)


@jax.custom_vjp
def pool_2_2(x: jax.Array) -> jax.Array:
    """The maximum of each 2 × 2 square, f32[B, H, W, c] -> f32[B, H // 2, W // 2, c]; an odd last row or column is left out. Its
    gradient goes to the first of equal ones."""
    return _largest(x)[0]


def _largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(the maximum of each 2 × 2 square, i32 of the same shape: at which of its four places it is)."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(batch, height // 2, 2, width // 2, 2, channels)
    a, b, c, d = (x[:, :, row, :, column] for row in (0, 1) for column in (0, 1))
    most = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    return most, jnp.where(a == most, 0, jnp.where(b == most, 1, jnp.where(c == most, 2, 3)))


def _at_largest(change: jax.Array, which: jax.Array, size: tuple[int, ...]) -> jax.Array:
    """f32[B, H, W, c]: each number at the place `which` in its 2 × 2 square, zeros elsewhere; `size` is (H, W)."""
    batch, rows, columns, channels = change.shape
    squares = lambda of: of[:, :, None, :, None, :]  # noqa: E731
    place = jnp.arange(4).reshape(1, 2, 1, 2, 1)
    spread = jnp.where(squares(which) == place, squares(change), 0.0).reshape(batch, 2 * rows, 2 * columns, channels)
    return jnp.pad(spread, ((0, 0), (0, size[0] - 2 * rows), (0, size[1] - 2 * columns), (0, 0)))


pool_2_2.defvjp(
    lambda x: (_largest(x)[0], (_largest(x)[1], x)),
    lambda kept, change: (_at_largest(change, kept[0], kept[1].shape[1:3]),),
)


def pool_3_2(x: jax.Array) -> jax.Array:
    """The maximum of 3 × 3 squares at steps of 2, f32[B, H, W, c] -> f32[B, ⌈H / 2⌉, ⌈W / 2⌉, c], padded as TensorFlow's SAME."""
    return _three_by_two(_three_by_two(x, 1), 2)


def _three_by_two(x: jax.Array, axis: int) -> jax.Array:
    size = x.shape[axis]
    out = -(-size // 2)
    missing = max((out - 1) * 2 + 3 - size, 0)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (missing // 2, missing - missing // 2)
    x = jnp.pad(x, widths, constant_values=-jnp.inf)
    first, second, third = (jax.lax.slice_in_dim(x, i, i + 2 * out - 1, 2, axis) for i in range(3))
    return jnp.maximum(jnp.maximum(first, second), third)


def local_response(x: jax.Array, radius: int = 4, alpha: float = 0.001 / 9, beta: float = 0.75) -> jax.Array:
    """Local response normalisation over neighbouring channels, with the numbers of TensorFlow's CIFAR-10 tutorial."""
    channel = jnp.arange(x.shape[-1])
    near = (jnp.abs(channel[:, None] - channel) <= radius).astype(x.dtype)
    return x * (1 + alpha * ((x * x) @ near)) ** -beta


def lstm(x: jax.Array, kernel: jax.Array, recurrent: jax.Array, bias: jax.Array, forget_bias: float) -> jax.Array:
    """An LSTM layer with one bias per gate: f32[B, T, inputs] -> f32[B, T, h]; kernel f32[inputs, 4h], recurrent f32[h, 4h],
    bias f32[4h], the gates in the order input, forget, cell, output."""
    width = recurrent.shape[0]
    driven = jnp.swapaxes(x @ kernel + bias, 0, 1)  # all steps in one product; f32[T, B, 4h]

    def step(carry: tuple[jax.Array, jax.Array], drive: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = carry
        enter, forget, new, leave = jnp.split(drive + hidden @ recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + forget_bias) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((x.shape[0], width), driven.dtype)
    return jnp.swapaxes(jax.lax.scan(step, (start, start), driven)[1], 0, 1)
