"""The networks as flax.linen modules. Imported when one is built, as this file imports flax."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from cfljax.models import layers, starts


def dense(x: jax.Array, outputs: int, start: str, name: str) -> jax.Array:
    """A dense layer inside a compact module: f32[B, inputs] -> f32[B, outputs]."""
    first, bias = starts.layer(start, name, x.shape[-1])
    return nn.Dense(outputs, kernel_init=first, bias_init=bias, name=name)(x)


class Conv(nn.Module):
    """A convolution that keeps the size; the parameters are the same in all forms."""

    outputs: int
    size: int
    form: str
    start: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, inputs] -> f32[B, H, W, outputs]."""
        first, bias = starts.layer(self.start, self.name or "", self.size**2 * x.shape[-1])
        kernel = self.param("kernel", first, (self.size, self.size, x.shape[-1], self.outputs))
        return layers.convolve(x, kernel, self.form) + self.param("bias", bias, (self.outputs,))


class Dense(nn.Module):
    """Dense layers with ReLU between them, on flattened samples. No hidden layer makes it logistic regression."""

    hidden: tuple[int, ...]
    classes: int
    start: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, ...] -> f32[B, classes]."""
        x = x.reshape(x.shape[0], -1)
        for number, width in enumerate(self.hidden):
            x = nn.relu(dense(x, width, self.start, f"dense_{number}"))
        return dense(x, self.classes, self.start, f"dense_{len(self.hidden)}")


class Convolutional(nn.Module):
    """Convolutions, each with 2 × 2 pooling and ReLU, then dense layers."""

    channels: tuple[int, ...]
    kernel: int
    hidden: tuple[int, ...]
    classes: int
    form: str
    start: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W] or f32[B, H, W, c] -> f32[B, classes]."""
        x = x[..., None] if x.ndim == 3 else x
        for number, outputs in enumerate(self.channels):
            x = Conv(outputs, self.kernel, self.form, self.start, name=f"conv_{number}")(x)
            x = nn.relu(layers.pool_2_2(x))  # pooling first: the same values, a quarter of the ReLUs
        return Dense(self.hidden, self.classes, self.start, name="head")(x)


class Cifar(nn.Module):
    """The CNN of TensorFlow's old CIFAR-10 tutorial, which IFCA uses."""

    channels: int
    hidden: tuple[int, ...]
    classes: int
    form: str
    start: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, c] -> f32[B, classes]."""
        x = nn.relu(layers.pool_3_2(Conv(self.channels, 5, self.form, self.start, name="conv_0")(x)))
        x = layers.local_response(x)
        x = nn.relu(Conv(self.channels, 5, self.form, self.start, name="conv_1")(x))
        x = layers.pool_3_2(layers.local_response(x))
        x = x.reshape(x.shape[0], -1)
        for number, width in enumerate(self.hidden):
            x = nn.relu(dense(x, width, self.start, f"dense_{number}"))
        return dense(x, self.classes, self.start, "out")


class Recurrent(nn.Module):
    """LSTM layers, of which the last step is read, a linear layer, and the outputs."""

    width: int
    depth: int
    hidden: int
    outputs: int
    forget_bias: float
    start: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, T, inputs] -> f32[B, outputs]."""
        for number in range(self.depth):
            kernel, recurrent, bias = (
                self.param(f"lstm_{number}_{part}", first, shape)
                for part, first, shape in _lstm_parts(self.start, x.shape[-1], self.width)
            )
            x = layers.lstm(x, kernel, recurrent, bias, self.forget_bias)
        x = dense(x[:, -1], self.hidden, self.start, "dense_0")
        return dense(x, self.outputs, self.start, "dense_1")


def _lstm_parts(start: str, inputs: int, width: int) -> tuple:
    """(name, initialiser, shape) of a layer's kernel, recurrent kernel and bias."""
    shapes = (inputs, 4 * width), (width, 4 * width), (4 * width,)
    if start == "torch":
        bound = 1 / math.sqrt(width)
        starters = (lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -bound, bound),) * 3
    else:
        starters = starts.gates(start, 4), starts.orthogonal_gates(4), nn.initializers.zeros
    return tuple(zip(("kernel", "recurrent", "bias"), starters, shapes, strict=True))
