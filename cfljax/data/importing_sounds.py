"""From WAV files in folders to samples; with --user-in-name the name of a file says who speaks."""

from __future__ import annotations

import math
import warnings
import wave
from pathlib import Path

import numpy as np

from cfljax.data.bounded import parser_errors
from cfljax.data.importing_folders import (
    SOUND_ENDINGS,
    compile_pattern,
    list_files,
    make_parts,
    show_progress,
)
from cfljax.data.parts import Part, Wanted
from cfljax.errors import DataError, DataWarning, SpecError

# Without --seconds, sounds are padded to the longest one, which may last this many seconds
MAX_SECONDS = 60.0


def read_sounds(folder: Path, wanted: Wanted) -> list[Part]:
    """Return the parts (training, test) of WAV files in folders."""
    if wanted.by_user and wanted.user_in_name:
        raise SpecError(
            "--by-user: has the users as folders, --user-in-name in names of files; leave "
            "one of the two out"
        )
    if wanted.seconds is not None and not 0 < wanted.seconds < float("inf"):
        raise SpecError(f"--seconds {wanted.seconds:g}: must be a number of seconds above 0")
    if wanted.log_mel < 0:
        raise SpecError(f"--log-mel {wanted.log_mel}: must be a number of bands, at least 1")
    if wanted.user_in_name:
        compile_pattern(wanted.user_in_name)
    found = list_files(folder, wanted, SOUND_ENDINGS, "WORD/x.wav")
    files = [file for side in found for file in side.files]
    rate, length = _measure(files, wanted)
    made = []
    empty = 0
    for file in show_progress(files, "sounds"):
        heard = read_wave(file)[:length]
        empty += not len(heard)
        sound = np.pad(heard, (0, length - len(heard)))
        made.append(log_mel(sound[None], rate, wanted.log_mel)[0] if wanted.log_mel else sound)
    if empty:
        warnings.warn(
            f"{empty} of {len(files)} sounds are empty and count as silence",
            DataWarning,
            stacklevel=2,
        )
    return make_parts(found, np.stack(made), wanted.by_user or bool(wanted.user_in_name))


def _measure(files: list[Path], wanted: Wanted) -> tuple[int, int]:
    """Return the sampling rate and the samples of each sound: `--seconds`, else the length of the
    longest."""
    rates, lengths = zip(*map(read_header, files), strict=True)
    for file, rate in zip(files, rates, strict=True):
        if rate != rates[0]:
            raise DataError(
                f"{file}: has {rate} samples a second, {files[0]} {rates[0]}; bring all to "
                "one rate first"
            )
    if wanted.seconds is not None:
        return rates[0], max(1, round(wanted.seconds * rates[0]))
    longest = int(np.argmax(lengths))
    if lengths[longest] > MAX_SECONDS * rates[0]:
        line = (
            f"{files[longest]}: lasts {lengths[longest] / rates[0]:.0f} s, and all sounds would "
            "be padded to that"
        )
        raise DataError(f"{line}; give --seconds, or --drop FOLDER")
    return rates[0], max(1, lengths[longest])


def read_header(file: Path) -> tuple[int, int]:
    """Return the sampling rate and length of a WAV file. Its header may claim more than the file
    holds: the smaller counts."""
    with (
        parser_errors(file, "as WAV", "; save it as plain PCM"),
        wave.open(str(file), "rb") as sound,
    ):
        room = file.stat().st_size // (sound.getsampwidth() * sound.getnchannels())
        return sound.getframerate(), min(sound.getnframes(), room)


def read_wave(file: Path) -> np.ndarray:
    """Return f32[samples] from −1 to 1 of a WAV file with 8, 16, 24 or 32 bits a sample: the mean
    of its channels."""
    with (
        parser_errors(file, "as WAV", "; save it as plain PCM"),
        wave.open(str(file), "rb") as sound,
    ):
        width = sound.getsampwidth()
        channels = sound.getnchannels()
        content = np.frombuffer(sound.readframes(sound.getnframes()), np.uint8)
        content = content[: len(content) // (width * channels) * width * channels].reshape(
            -1, width
        )
        # WAV files with 8 bits have no sign: 128 is silence
        if width == 1:
            wide = (content.astype(np.float64) - 128) / 128
        # The bytes become the upper ones of 32 bits, so that one division fits all widths
        elif width in (2, 3, 4):
            wide = np.pad(content, ((0, 0), (4 - width, 0))).view("<i4") / 2.0**31
        else:
            raise ValueError(f"it has {8 * width} bits a sample, not 8, 16, 24 or 32")
        return wide.reshape(-1, channels).mean(1, dtype=np.float64).astype(np.float32)


def log_mel(
    waves: np.ndarray,
    rate: int,
    bands: int = 40,
    window: float = 0.025,
    step: float = 0.010,
    floor: float = 1e-6,
) -> np.ndarray:
    """Compute log-mel features f32[n, frames, bands]: the logarithm of the energy of each frame in
    triangular bands that are equally wide on the mel scale (2595 · log₁₀(1 + Hz / 700), from 0 to
    half the rate). Frames are weighed by a Hann window; a sound's end that fills no frame is left
    out.

    Args:
        waves: sounds f[n, samples].
        rate: samples a second.
        bands: how many.
        window: seconds of a frame.
        step: seconds from frame to frame.
        floor: is added to the energy, as silence has no logarithm."""
    waves = np.asarray(waves, np.float32)
    length = round(window * rate)
    hop = round(step * rate)
    if waves.ndim != 2 or hop < 1 or not 2 <= length <= waves.shape[1]:
        raise DataError(
            f"sounds are {list(waves.shape)}: must be [sounds, samples], at least {length} "
            f"samples of {window} s each"
        )
    size = 1 << math.ceil(math.log2(length))
    weights = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype(np.float32)
    filters = triangles(bands, size, rate).T
    frames = np.lib.stride_tricks.sliding_window_view(waves, length, axis=1)[:, ::hop]
    features = np.empty((*frames.shape[:2], bands), np.float32)
    # One sound at a time, because all at once would take 25 times the memory of the sounds
    for number, sound in enumerate(frames):
        power = np.abs(np.fft.rfft(sound * weights, size)) ** 2
        features[number] = np.log(power @ filters + floor)
    return features


def triangles(bands: int, size: int, rate: int) -> np.ndarray:
    """Return f64[bands, size // 2 + 1]: how much of each frequency a band gets: all in its middle,
    none beyond its neighbours' middles."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    low = edges[:bands, None]
    middle = edges[1 : 1 + bands, None]
    high = edges[2 : 2 + bands, None]
    frequency = np.fft.rfftfreq(size, 1 / rate)
    rising = (frequency - low) / (middle - low)
    falling = (high - frequency) / (high - middle)
    found: np.ndarray = np.clip(np.minimum(rising, falling), 0, None)
    if not found.any(1).all():
        raise DataError(
            f"{bands} bands of {size} samples at {rate} a second: the lowest have no "
            "frequency; give fewer bands"
        )
    return found
