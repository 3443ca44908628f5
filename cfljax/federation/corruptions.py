"""HOST. Corruptions of images as in CIFAR-10-C (Hendrycks and Dietterich 2019), in plain numpy:
blur, noise, contrast, brightness, and the loss of a JPEG file. A corruption is a function of images
f64[n, height, width, channels] in [0, 1], its strength, and a random generator for each image; it
returns images in [0, 1].

Readings. Paper: the strengths of the benchmark's program for 32 × 32 pixels (STRENGTHS). Here: the
same, for images of any size. Paper: bytes are cut off. Here: they are rounded. Paper: Pillow's JPEG
halves the resolution of colours. Here: it does not, and what is lost is computed without a file:
transform of 8 × 8 blocks, division by the standard's tables, rounding, and back."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

Corrupt = Callable[[np.ndarray, float, Sequence[np.random.Generator]], np.ndarray]

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
# For each corruption its strength at severity 1 to 5: the blur's deviation in pixels, the noise's
# deviation, the factor of contrast, JPEG's quality, the share of pixels, what is added, and the
# photons of a white pixel
STRENGTHS: dict[str, list[float]] = _TABLES["strengths"]
# Images that are corrupted at a time
_IMAGES_AT_A_TIME = 1024

# The tables of the JPEG standard (ITU T.81, annex K)
_LUMINANCE = np.array(_TABLES["jpeg"]["luminance"])
_CHROMINANCE = np.array(_TABLES["jpeg"]["chrominance"])


def corrupt_images(
    x: np.ndarray, kind: str, severity: int, key: Sequence[int], rows: np.ndarray
) -> np.ndarray:
    """Corrupt the images x[rows]: u8[n, height, width, channels], or f32 in [0, 1]. `key` and an
    image's row seed its noise."""
    out = np.empty((len(rows), *x.shape[1:]), x.dtype)
    corrupt = _CORRUPT_BY_NAME[kind]
    strength = STRENGTHS[kind][severity - 1]
    noisy = kind.endswith("_noise")
    for at in range(0, len(rows), _IMAGES_AT_A_TIME):
        some = rows[at : at + _IMAGES_AT_A_TIME]
        rngs = [np.random.default_rng([*key, int(row)]) for row in some] if noisy else []
        images = x[some] / 255.0 if x.dtype == np.uint8 else x[some].astype(np.float64)
        images = corrupt(images, strength, rngs)
        out[at : at + len(some)] = np.rint(255 * images) if x.dtype == np.uint8 else images
    return out


def gaussian_blur(x: np.ndarray, deviation: float, _: Sequence[np.random.Generator]) -> np.ndarray:
    """Apply a Gaussian filter along rows and columns, cut off at four deviations; edge values are
    repeated."""
    reach = int(4 * deviation + 0.5)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    weights /= weights.sum()
    for axis in (1, 2):
        wide = np.pad(x, [(reach, reach) if a == axis else (0, 0) for a in range(4)], mode="edge")
        size = x.shape[axis]
        x = sum(w * np.take(wide, range(i, i + size), axis=axis) for i, w in enumerate(weights))
    return np.clip(x, 0, 1)


def gaussian_noise(
    x: np.ndarray, deviation: float, rngs: Sequence[np.random.Generator]
) -> np.ndarray:
    """Add normal noise to every value."""
    return np.clip(
        x + deviation * np.stack([rng.standard_normal(x.shape[1:]) for rng in rngs]), 0, 1
    )


def shot_noise(x: np.ndarray, photons: float, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Replace every value by a Poisson-distributed count of photons."""
    return np.clip(
        np.stack([rng.poisson(image * photons) for rng, image in zip(rngs, x, strict=True)])
        / photons,
        0,
        1,
    )


def impulse_noise(x: np.ndarray, share: float, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Set this share of the values to 0 or 1 with equal probability."""
    drawn = np.stack([rng.random(x.shape[1:]) for rng in rngs])
    return np.where(drawn < share / 2, 0.0, np.where(drawn < share, 1.0, x))


def contrast(x: np.ndarray, factor: float, _: Sequence[np.random.Generator]) -> np.ndarray:
    """Move values towards the mean of their channel."""
    mean = x.mean((1, 2), keepdims=True)
    return np.clip((x - mean) * factor + mean, 0, 1)


def brightness(x: np.ndarray, more: float, _: Sequence[np.random.Generator]) -> np.ndarray:
    """Raise the largest channel of each pixel by this much, up to 1; hue and saturation stay."""
    value = x.max(-1, keepdims=True)
    wanted = np.minimum(value + more, 1.0)
    return np.where(value > 0, x * wanted / np.where(value > 0, value, 1.0), wanted)


def jpeg(x: np.ndarray, quality: float, _: Sequence[np.random.Generator]) -> np.ndarray:
    """Compress and decompress images as a JPEG file of this quality would: three channels are
    colours, others separate."""
    height, width, channels = x.shape[1:]
    x = np.pad(np.rint(255 * x), [(0, 0), (0, -height % 8), (0, -width % 8), (0, 0)], mode="edge")
    colours = channels == 3
    if colours:
        x = x @ _TO_YCC.T + (0, 128, 128)
    tables = np.stack([_CHROMINANCE if colours and c else _LUMINANCE for c in range(channels)], -1)
    tables = np.clip(
        (tables * (5000 // quality if quality < 50 else 200 - 2 * quality) + 50) // 100, 1, 255
    )
    n, h, w, _c = x.shape
    blocks = np.rint(x).reshape(n, h // 8, 8, w // 8, 8, channels) - 128
    steps = _transform_blocks(blocks, _DCT) / tables[None, None, :, None]
    # Halves go outwards, as libjpeg's
    rounded = np.sign(steps) * np.floor(np.abs(steps) + 0.5 + 1e-9) * tables[None, None, :, None]
    x = np.clip(np.rint(_transform_blocks(rounded, _DCT.T) + 128), 0, 255).reshape(
        n, h, w, channels
    )
    if colours:
        x = (x - (0, 128, 128)) @ np.linalg.inv(_TO_YCC).T
    return np.clip(np.rint(x) / 255, 0, 1)[:, :height, :width]


def _transform_blocks(blocks: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Compute matrix · block · matrixᵀ for each block [n, rows of blocks, 8, columns of blocks, 8,
    channels]."""
    n, rows, _, columns, _, channels = blocks.shape
    # One large product: four times as fast
    lines = blocks.transpose(0, 1, 3, 5, 2, 4).reshape(-1, 64) @ np.kron(matrix, matrix).T
    return lines.reshape(n, rows, columns, channels, 8, 8).transpose(0, 1, 4, 2, 5, 3)


def _cosines() -> np.ndarray:
    """Return f64[8, 8]: the orthonormal cosine transform (DCT-II)."""
    u, x = np.mgrid[0:8, 0:8]
    return np.where(u == 0, np.sqrt(1 / 8), 0.5 * np.cos((2 * x + 1) * u * np.pi / 16))


_DCT = _cosines()
_TO_YCC = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]]
)
_CORRUPT_BY_NAME: dict[str, Corrupt] = {
    f.__name__: f
    for f in (gaussian_blur, gaussian_noise, contrast, jpeg, impulse_noise, brightness, shot_noise)
}
# What a group may see; the first of them are the groups of the partition `corrupted`, unless its
# `kinds` says otherwise
CORRUPTIONS = ("none", *_CORRUPT_BY_NAME)
