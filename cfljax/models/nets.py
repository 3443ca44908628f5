"""The networks as flax.linen modules. Imported when one is built, as this file imports flax."""

from __future__ import annotations

import jax
from flax import linen as nn

from cfljax.models import starts


def dense(x: jax.Array, outputs: int, init: str, name: str) -> jax.Array:
    """A dense layer inside a compact module: f32[B, inputs] -> f32[B, outputs]."""
    layer = nn.Dense(outputs, kernel_init=starts.kernel(init), bias_init=starts.bias(init, x.shape[-1]), name=name)
    return layer(x)


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
