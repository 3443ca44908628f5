"""Features of speech: logarithms of the energy in bands of the mel scale, frame by frame, from arrays of samples of sound."""

from __future__ import annotations

import math

import numpy as np

from cfljax.errors import DataError


def log_mel(
    waves: np.ndarray, rate: int, bands: int = 40, window: float = 0.025, step: float = 0.010, floor: float = 1e-6
) -> np.ndarray:
    """f32[n, frames, bands] of sounds f[n, samples], `rate` samples a second: the energy of each frame of `window` seconds, one
    every `step` seconds, in triangular bands that are equally wide on the mel scale (2595 · log₁₀(1 + Hz / 700), from 0 to half the
    rate), and of that the logarithm. Frames are weighed by a Hann window; a sound's end that fills no frame is left out."""
    waves = np.asarray(waves, np.float32)
    length, hop = round(window * rate), round(step * rate)
    if waves.ndim != 2 or hop < 1 or not 2 <= length <= waves.shape[1]:
        raise DataError(f"sounds are {list(waves.shape)}: must be [sounds, samples], at least {length} samples of {window} s each")
    size = 1 << math.ceil(math.log2(length))
    weights = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype(np.float32)
    filters = triangles(bands, size, rate).T
    frames = np.lib.stride_tricks.sliding_window_view(waves, length, axis=1)[:, ::hop]
    features = np.empty((*frames.shape[:2], bands), np.float32)
    for number, sound in enumerate(frames):  # all at once would take 25 times the memory of the sounds
        power = np.abs(np.fft.rfft(sound * weights, size)) ** 2
        features[number] = np.log(power @ filters + floor)
    return features


def triangles(bands: int, size: int, rate: int) -> np.ndarray:
    """f64[bands, size // 2 + 1]: how much of each frequency a band gets: all in its middle, none beyond its neighbours' middles."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    low, middle, high = (edges[i : i + bands, None] for i in range(3))
    heard = np.fft.rfftfreq(size, 1 / rate)
    found: np.ndarray = np.clip(np.minimum((heard - low) / (middle - low), (high - heard) / (high - middle)), 0, None)
    if not found.any(1).all():
        raise DataError(f"{bands} bands of {size} samples at {rate} a second: the lowest have no frequency; give fewer bands")
    return found
