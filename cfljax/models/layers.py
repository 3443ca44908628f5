"""What convolutional and recurrent networks are made of, as functions of arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp

CONVOLUTIONS = ("auto", "patches", "native")


def convolve(x: jax.Array, kernel: jax.Array, form: str) -> jax.Array:
    """Convolution that keeps the size: f32[B, H, W, inputs], f32[k, k, inputs, outputs] -> f32[B, H, W, outputs].
    "patches" is one matrix product over the k · k shifted images; "auto" takes it on a CPU, where the weight gradient of
    XLA's own convolution is some hundred times slower inside a loop."""
    if form == "auto":
        form = "patches" if jax.default_backend() == "cpu" else "native"
    if form == "native":
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    rows, columns, inputs, outputs = kernel.shape
    batch, height, width, _ = x.shape
    x = jnp.pad(x, ((0, 0), ((rows - 1) // 2, rows // 2), ((columns - 1) // 2, columns // 2), (0, 0)))
    shifted = [x[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)]
    patches = jnp.concatenate(shifted, axis=-1).reshape(-1, rows * columns * inputs)
    return (patches @ kernel.reshape(-1, outputs)).reshape(batch, height, width, outputs)


def pool_2_2(x: jax.Array) -> jax.Array:
    """The maximum of each 2 × 2 square, f32[B, H, W, c] -> f32[B, H // 2, W // 2, c]; an odd last row or column is left out."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    x = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return jnp.max(x, axis=(2, 4))


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
