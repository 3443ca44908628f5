"""Initial weights: one word for kernels and biases of dense and convolutional layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

STARTS = ("lecun", "he", "glorot", "torch")
HELP = "initial weights: lecun and he (normal), glorot (uniform, as Keras), torch (uniform, biases too)"


def kernel(init: str) -> Callable[..., jax.Array]:
    """The initialiser of a kernel [..., inputs, outputs]: (key, shape, dtype) -> array."""
    initializers: dict[str, Any] = {
        "lecun": jax.nn.initializers.lecun_normal(),
        "he": jax.nn.initializers.he_normal(),
        "glorot": jax.nn.initializers.glorot_uniform(),
        "torch": jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform"),  # U(±1/√fan_in)
        "zeros": jax.nn.initializers.zeros,
    }
    return initializers[init]


def bias(init: str, inputs: int) -> Callable[..., jax.Array]:
    """The initialiser of the bias of a layer in which each output sees so many inputs."""
    if init != "torch":
        return jax.nn.initializers.zeros
    bound = 1 / math.sqrt(inputs)
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)
