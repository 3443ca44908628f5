"""Random crops, flips, brightness and contrast for training, and the same without randomness for
evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.keys import fold
from cfljax.lazy import jax, jnp


class Augmentation(NamedTuple):
    """The changes to an image f32[H, W, c], in this order."""

    # Side of the square that is cut out (anywhere in training, from the centre in evaluation); 0:
    # the whole image
    crop: int = 0
    # Mirror the image, left to right, with probability 1/2
    flip: bool = False
    # The largest amount that is added to or subtracted from all pixels, in the units of the model's
    # input
    brightness: float = 0.0
    # Each channel is stretched about its mean by a factor of 1 ± this at most
    contrast: float = 0.0
    # Standardise each image to mean 0 and variance 1, in training and evaluation
    standardise: bool = False


def make_training(how: Augmentation) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Make (key, x f32[B, H, W, c]) -> f32[B, h, w, c]. A sample's draws depend on its position
    only, not on padding after it."""

    def apply(key: jax.Array, x: jax.Array) -> jax.Array:
        # In the other implementation a row of the draw depends on the number of rows
        with jax.threefry_partitionable(True):
            drawn = jax.random.uniform(fold(key, "augment"), (x.shape[0], 5))
        return jax.vmap(lambda numbers, image: _augment(numbers, image, how))(drawn, x)

    return apply


def make_evaluation(how: Augmentation) -> Callable[[jax.Array], jax.Array]:
    """Make the crop of evaluation: x f32[B, H, W, c] -> f32[B, h, w, c], the centre of the
    image."""

    def apply(x: jax.Array) -> jax.Array:
        if how.crop:
            top = (x.shape[1] - how.crop) // 2
            left = (x.shape[2] - how.crop) // 2
            x = x[:, top : top + how.crop, left : left + how.crop]
        return _standardise(x) if how.standardise else x

    return apply


def _augment(drawn: jax.Array, x: jax.Array, how: Augmentation) -> jax.Array:
    """Augment one image with five random numbers that are uniform in [0, 1)."""
    down, right, side, light, stretch = drawn
    if how.crop:
        # A product may be rounded up to the end of its range; dynamic_slice stays inside the image
        top = (down * (x.shape[0] - how.crop + 1)).astype(jnp.int32)
        left = (right * (x.shape[1] - how.crop + 1)).astype(jnp.int32)
        x = jax.lax.dynamic_slice(x, (top, left, 0), (how.crop, how.crop, x.shape[2]))
    if how.flip:
        x = jnp.where(side < 0.5, x[:, ::-1], x)
    if how.brightness:
        x = x + how.brightness * (2 * light - 1)
    if how.contrast:
        mean = jnp.mean(x, axis=(0, 1))
        x = mean + (x - mean) * (1 + how.contrast * (2 * stretch - 1))
    return _standardise(x) if how.standardise else x


def _standardise(x: jax.Array) -> jax.Array:
    """Standardise f32[..., H, W, c]; an image of one colour, which has only rounding errors,
    becomes zero."""
    axes = (-3, -2, -1)
    x = x - jnp.mean(x, axis=axes, keepdims=True)
    return x / jnp.maximum(jnp.sqrt(jnp.mean(x * x, axis=axes, keepdims=True)), 1e-3)
