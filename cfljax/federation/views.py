"""Views as index maps: how a group sees the pool, without a copy of it."""

from __future__ import annotations

import math

import numpy as np

from cfljax.errors import SpecError


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(height, width, channels) of a sample; a flat sample whose length is a square is a square image."""
    if len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return math.isqrt(shape[0]), math.isqrt(shape[0]), 1
    if len(shape) in (2, 3):
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
    raise SpecError(f"data.partition: samples of shape {shape} are not images and cannot be rotated; choose a data set of images")


def rotation(shape: tuple[int, ...], angle: float) -> np.ndarray:
    """i32[F]: where each value of the flattened sample comes from when the image is turned counter-clockwise by `angle`
    degrees: exactly for quarter turns, else to the nearest pixel; −1 comes from outside the image."""
    height, width, channels = image_shape(shape)
    places = np.arange(height * width * channels, dtype=np.int32).reshape(height, width, channels)
    turns, rest = divmod(angle % 360, 90)
    if rest == 0 and (height == width or turns % 2 == 0):
        return np.rot90(places, int(turns)).ravel()
    radians = math.radians(angle)
    down, right = np.mgrid[0:height, 0:width].astype(np.float64)
    down, right = down - (height - 1) / 2, right - (width - 1) / 2
    row = math.cos(radians) * down + math.sin(radians) * right + (height - 1) / 2
    column = -math.sin(radians) * down + math.cos(radians) * right + (width - 1) / 2
    row, column = (np.floor(a + 0.5 + 1e-9).astype(np.int64) for a in (row, column))
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    found = places[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
    return np.where(inside[..., None], found, -1).astype(np.int32).ravel()


def rotations(shape: tuple[int, ...], angles: tuple[float, ...]) -> np.ndarray:
    """i32[V, F]: one rotation per view."""
    return np.stack([rotation(shape, a) for a in angles])


def even_angles(groups: int) -> tuple[float, ...]:
    """Angles that divide the circle evenly (0 and 180 for two groups); quarter turns for three."""
    step = 90.0 if groups == 3 else 360.0 / groups
    return tuple(g * step for g in range(groups))
