"""Initial weights: one word for the kernels and biases of all layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

STARTS = ("lecun", "he", "glorot", "torch")
HELP = "initial weights: lecun and he (normal), glorot (uniform, as Keras), torch (uniform, biases too)"

Start = Callable[..., jax.Array]
"""(key, shape, dtype = float32) -> array."""

_IFCA = {  # layer: spread of the kernel, and the bias
    "conv_0": (0.05, 0.0),
    "conv_1": (0.05, 0.1),
    "dense_0": (0.04, 0.1),
    "dense_1": (0.04, 0.1),
    "out": (1 / 192, 0.0),
}


def layer(start: str, name: str, inputs: int) -> tuple[Start, Start]:
    """The initialisers of a layer's kernel and bias; each of its outputs sees so many inputs."""
    if start == "ifca":
        spread, level = _IFCA[name]
        return jax.nn.initializers.truncated_normal(spread), jax.nn.initializers.constant(level)
    if start == "torch":
        bound = 1 / math.sqrt(inputs)

        def uniform(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        return uniform, uniform
    return kernel(start), jax.nn.initializers.zeros


def kernel(start: str) -> Start:
    """The initialiser of a kernel [..., inputs, outputs]."""
    initializers: dict[str, Any] = {
        "lecun": jax.nn.initializers.lecun_normal(),
        "he": jax.nn.initializers.he_normal(),
        "glorot": jax.nn.initializers.glorot_uniform(),
        "zeros": jax.nn.initializers.zeros,
    }
    return initializers[start]


def gates(start: str, count: int) -> Start:
    """Kernels [inputs, count · h] of a recurrent layer's gates, each drawn for itself."""
    return _side_by_side(kernel(start), count)


def orthogonal_gates(count: int) -> Start:
    """Recurrent kernels [h, count · h], each orthogonal."""
    return _side_by_side(jax.nn.initializers.orthogonal(), count)


def _side_by_side(start: Start, count: int) -> Start:
    def drawn(key: jax.Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> jax.Array:
        keys = jax.random.split(key, count)
        return jnp.concatenate([start(k, (shape[0], shape[1] // count), dtype) for k in keys], axis=1)

    return drawn
