"""What the forms of convolution share: which pixels lie under a kernel."""

from __future__ import annotations

from cfljax.lazy import jax, jnp

Around = tuple[tuple[int, int], tuple[int, int]]
"""How many rows of zeros come above and below, and how many columns on the left and right."""


def padding_of(kernel: jax.Array) -> Around:
    """Return the padding of a convolution around every pixel with the kernel f32[k, k, …]."""
    rows, columns = (((side - 1) // 2, side // 2) for side in kernel.shape[:2])
    return rows, columns


def convolve_by_xla(x: jax.Array, kernel: jax.Array, strides: tuple[int, int], around: Around) -> jax.Array:
    """Convolve by XLA: f32[B, H, W, inputs], f32[k, k, inputs, outputs] -> f32[B, H', W', outputs]."""
    return jax.lax.conv_general_dilated(x, kernel, strides, around, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def shift_images(x: jax.Array, kernel: jax.Array, stride: int) -> list[jax.Array]:
    """Shift f32[B, H, W, c] to each position under the kernel: k · k images f32[B, ⌈H / stride⌉, ⌈W / stride⌉, c]."""
    (_, high, wide, _), (rows, columns) = x.shape, kernel.shape[:2]
    x = jnp.pad(x, ((0, 0), *padding_of(kernel), (0, 0)))
    return [x[:, i : i + high : stride, j : j + wide : stride] for i in range(rows) for j in range(columns)]
