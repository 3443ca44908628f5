"""The networks as flax.linen modules. Imported when one is built, as this file imports flax."""

from __future__ import annotations

from cfljax.lazy import jax, nn
from cfljax.models import layers, pooling

# Only the shapes of the parameters are taken from here; `starts` draws their values.
ZEROS = nn.initializers.zeros


class Conv(nn.Module):
    """A convolution that keeps the size, or, with the padding "valid", loses `size` - 1 rows and
    columns; the parameters are the same in all forms."""

    outputs: int
    size: int
    form: str
    # Followed by 2 × 2 pooling; the bias comes after it: the same values, a quarter of the sums
    pooled: bool = False
    padding: str = "same"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, inputs] -> f32[B, H, W, outputs], or f32[B, H // 2, W // 2,
        outputs]."""
        kernel = self.param("kernel", ZEROS, (self.size, self.size, x.shape[-1], self.outputs))
        bias = self.param("bias", ZEROS, (self.outputs,))
        return (
            layers.convolve(x, kernel, self.form, pooled=self.pooled, padding=self.padding) + bias
        )


def batch_norm(name: str) -> nn.BatchNorm:
    """Make a layer of batch normalisation with PyTorch's numbers."""
    return nn.BatchNorm(momentum=0.9, epsilon=1e-5, name=name)


class Dense(nn.Module):
    """Dense layers with ReLU between them, on flattened images: the head of a network of
    convolutions."""

    hidden: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, ...] -> f32[B, classes]."""
        x = x.reshape(x.shape[0], -1)
        for number, width in enumerate(self.hidden):
            x = nn.relu(nn.Dense(width, name=f"dense_{number}")(x))
        return nn.Dense(self.classes, name=f"dense_{len(self.hidden)}")(x)


class Convolutional(nn.Module):
    """Convolutions, each with batch normalisation if `batched`, 2 × 2 pooling and ReLU, then dense
    layers."""

    channels: tuple[int, ...]
    kernel: int
    hidden: tuple[int, ...]
    classes: int
    form: str
    batched: bool = False
    padding: str = "same"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W] or f32[B, H, W, c] -> f32[B, classes]."""
        x = x[..., None] if x.ndim == 3 else x
        for number, outputs in enumerate(self.channels):
            x = Conv(
                outputs,
                self.kernel,
                self.form,
                pooled=not self.batched,
                padding=self.padding,
                name=f"conv_{number}",
            )(x)
            x = nn.relu(pooling.pool_2_2(batch_norm(f"norm_{number}")(x)) if self.batched else x)
        return Dense(self.hidden, self.classes, name="head")(x)


class Cifar(nn.Module):
    """The CNN of TensorFlow's old CIFAR-10 tutorial, which IFCA uses."""

    channels: int
    hidden: tuple[int, ...]
    classes: int
    form: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, c] -> f32[B, classes]."""
        x = nn.relu(pooling.pool_3_2_same(Conv(self.channels, 5, self.form, name="conv_0")(x)))
        x = layers.local_response(x)
        x = nn.relu(Conv(self.channels, 5, self.form, name="conv_1")(x))
        x = pooling.pool_3_2_same(layers.local_response(x))
        x = x.reshape(x.shape[0], -1)
        for number, width in enumerate(self.hidden):
            x = nn.relu(nn.Dense(width, name=f"dense_{number}")(x))
        return nn.Dense(self.classes, name="out")(x)


class LSTM(nn.Module):
    """An LSTM layer with one bias per gate."""

    width: int
    forget_bias: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, T, inputs] -> f32[B, T, width]."""
        kernel = self.param("kernel", ZEROS, (x.shape[-1], 4 * self.width))
        recurrent = self.param("recurrent", ZEROS, (self.width, 4 * self.width))
        return layers.lstm(
            x, kernel, recurrent, self.param("bias", ZEROS, (4 * self.width,)), self.forget_bias
        )


class Recurrent(nn.Module):
    """LSTM layers, of which the last step is read, a linear layer, and the outputs."""

    width: int
    depth: int
    hidden: int
    outputs: int
    forget_bias: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, T, inputs] -> f32[B, outputs]."""
        for number in range(self.depth):
            x = LSTM(self.width, self.forget_bias, name=f"lstm_{number}")(x)
        x = nn.Dense(self.hidden, name="dense_0")(x[:, -1])
        return nn.Dense(self.outputs, name="dense_1")(x)
