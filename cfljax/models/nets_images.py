"""ResNets, MobileNetV2 and the vision transformer as flax.linen modules. Imported when one is
built, as this file imports flax."""

from __future__ import annotations

import math

from cfljax.lazy import jax, jnp, nn
from cfljax.models import blocks, layers
from cfljax.models.nets import ZEROS, batch_norm
from cfljax.models.nets_tokens import Block


class Conv(nn.Module):
    """A convolution without bias; `alone`: of each channel alone."""

    outputs: int
    size: int
    form: str
    stride: int = 1
    alone: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, inputs] -> f32[B, ⌈H / stride⌉, ⌈W / stride⌉, outputs]."""
        kernel = self.param(
            "kernel", ZEROS, (self.size, self.size, 1 if self.alone else x.shape[-1], self.outputs)
        )
        if self.alone:
            return blocks.depthwise(x, kernel, self.form, self.stride)
        # In all forms
        if self.size == 1:
            return layers.multiply_pixels(x[:, :: self.stride, :: self.stride], kernel[0, 0])
        return layers.convolve(x, kernel, self.form, stride=self.stride)


class Norm(nn.Module):
    """Group normalisation."""

    groups: int
    # Clip to [0, most]; None: do not clip
    most: float | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, c] -> the same."""
        scale, bias = (self.param(name, ZEROS, (x.shape[-1],)) for name in ("scale", "bias"))
        return blocks.group_norm(x, scale, bias, self.groups, self.most)


def normalise(x: jax.Array, groups: int, name: str, most: float | None = None) -> jax.Array:
    """Normalise f32[B, H, W, c] in `groups` of channels, or (0) by the statistics of the batch;
    then clip to [0, most]."""
    if groups:
        return Norm(groups, most, name=name)(x)
    y = batch_norm(name)(x)
    return y if most is None else jnp.clip(y, 0.0, most)


def replace_norm(network: object) -> ResNet | MobileNet | None:
    """Replace group by batch normalisation; None if the network is not one of this file's."""
    return network.clone(groups=0) if isinstance(network, ResNet | MobileNet) else None


class Residual(nn.Module):
    """A block of two 3 × 3 convolutions and the way around them."""

    outputs: int
    stride: int
    groups: int
    form: str
    projected: bool
    """Whether the way around a block that changes the shape is a 1 × 1 convolution; else every
    second pixel, and zeros for the new channels, half of them before the others and half behind."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, inputs] -> f32[B, ⌈H / stride⌉, ⌈W / stride⌉, outputs]."""
        y = normalise(
            Conv(self.outputs, 3, self.form, self.stride, name="conv_0")(x),
            self.groups,
            "norm_0",
            math.inf,
        )
        y = normalise(Conv(self.outputs, 3, self.form, name="conv_1")(y), self.groups, "norm_1")
        if x.shape != y.shape and self.projected:
            x = normalise(
                Conv(self.outputs, 1, self.form, self.stride, name="around")(x),
                self.groups,
                "norm_around",
            )
        elif x.shape != y.shape:
            more = self.outputs - x.shape[-1]
            x = jnp.pad(
                x[:, :: self.stride, :: self.stride],
                ((0, 0), (0, 0), (0, 0), (more // 2, more - more // 2)),
            )
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Stages of residual blocks; each stage but the first halves the image and doubles the
    channels."""

    depths: tuple[int, ...]
    width: int
    groups: int
    classes: int
    form: str
    projected: bool
    # Begin with a 7 × 7 convolution and pooling, for large images
    large: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W] or f32[B, H, W, c] -> f32[B, classes]."""
        x = x[..., None] if x.ndim == 3 else x
        first = (
            Conv(self.width, 7, self.form, 2, name="conv")
            if self.large
            else Conv(self.width, 3, self.form, name="conv")
        )
        x = normalise(first(x), self.groups, "norm", math.inf)
        x = blocks.pool_3_2_centred(x) if self.large else x
        for stage, depth in enumerate(self.depths):
            for number in range(depth):
                stride = 2 if stage and not number else 1
                name = f"block_{stage}_{number}"
                x = Residual(
                    self.width << stage, stride, self.groups, self.form, self.projected, name=name
                )(x)
        return nn.Dense(self.classes, name="head")(jnp.mean(x, (1, 2)))


class Inverted(nn.Module):
    """MobileNetV2's block: wider by a 1 × 1 convolution, each channel alone, narrower again."""

    outputs: int
    stride: int
    wider: int
    groups: int
    form: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[B, H, W, inputs] -> f32[B, ⌈H / stride⌉, ⌈W / stride⌉, outputs]."""
        y = x
        width = x.shape[-1] * self.wider
        if self.wider > 1:
            y = normalise(Conv(width, 1, self.form, name="conv_0")(y), self.groups, "norm_0", 6.0)
        y = normalise(
            Conv(width, 3, self.form, self.stride, True, name="conv_1")(y),
            self.groups,
            "norm_1",
            6.0,
        )
        y = normalise(Conv(self.outputs, 1, self.form, name="conv_2")(y), self.groups, "norm_2")
        return x + y if x.shape == y.shape else y


class MobileNet(nn.Module):
    """MobileNetV2."""

    # (how much wider, channels, blocks, stride of the first) of each stage
    stages: tuple[tuple[int, int, int, int], ...]
    first: int
    last: int
    # Of the first convolution
    stride: int
    groups: int
    classes: int
    dropout: float
    form: str

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        """f32[B, H, W] or f32[B, H, W, c] -> f32[B, classes]."""
        x = x[..., None] if x.ndim == 3 else x
        x = normalise(
            Conv(self.first, 3, self.form, self.stride, name="conv")(x), self.groups, "norm", 6.0
        )
        for stage, (wider, channels, depth, stride) in enumerate(self.stages):
            for number in range(depth):
                step = 1 if number else stride
                name = f"block_{stage}_{number}"
                x = Inverted(channels, step, wider, self.groups, self.form, name=name)(x)
        x = normalise(
            Conv(self.last, 1, self.form, name="last_conv")(x), self.groups, "last_norm", 6.0
        )
        x = nn.Dropout(self.dropout, deterministic=deterministic)(jnp.mean(x, (1, 2)))
        return nn.Dense(self.classes, name="head")(x)


class Vision(nn.Module):
    """A transformer over the squares of an image and a token for its class."""

    patch: int
    width: int
    depth: int
    heads: int
    classes: int
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        """f32[B, H, W] or f32[B, H, W, c] -> f32[B, classes]."""
        x = x[..., None] if x.ndim == 3 else x
        batch, height, width, channels = x.shape
        p = self.patch
        rows = height // self.patch
        columns = width // self.patch
        x = (
            x.reshape(batch, rows, p, columns, p, channels)
            .swapaxes(2, 3)
            .reshape(batch, rows * columns, -1)
        )
        kernel = self.param("embed_kernel", ZEROS, (p, p, channels, self.width))
        x = x @ kernel.reshape(-1, self.width) + self.param("embed_bias", ZEROS, (self.width,))
        token = jnp.broadcast_to(
            self.param("class_token", ZEROS, (self.width,)), (batch, 1, self.width)
        )
        x = jnp.concatenate([token, x], 1) + self.param(
            "embed_positions", ZEROS, (rows * columns + 1, self.width)
        )
        x = nn.Dropout(self.dropout, deterministic=deterministic)(x)
        for number in range(self.depth):
            x = Block(self.heads, 4 * self.width, self.dropout, 1e-6, name=f"block_{number}")(
                x, None, deterministic
            )
        return nn.Dense(self.classes, name="head")(nn.LayerNorm(1e-6, name="last_norm")(x[:, 0]))
