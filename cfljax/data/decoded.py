"""A cache of decoded images: tensorflow-datasets keeps PNG files, and decoding 100,000 of them takes most of a minute."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cfljax.data.npz import load_arrays
from cfljax.errors import DataError
from cfljax.files import written_whole

WORTHWHILE = 5000
"""Fewer samples are decoded each time."""
_NAMES = ("x_train", "y_train", "x_test", "y_test")


def decoded(
    source: Path, contents: Callable[[], str], folder: Path, count: int, decode: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """`decode()`'s four arrays, from `folder` where they were kept for files of `source` with exactly these contents."""
    if count < WORTHWHILE:
        return decode()
    file = folder / f"{source.parent.name}-{source.name}-{contents()[:16]}.npz"
    with contextlib.suppress(DataError):  # none yet, or damaged: decoded again, and written anew
        return load_arrays(file, _NAMES)
    made = decode()
    with contextlib.suppress(OSError):  # a full or read-only disk costs time, not the run
        _write(file, made)
    return made


def _write(file: Path, made: dict[str, np.ndarray]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as part, part.open("wb") as f:
        np.savez(f, **made)  # type: ignore[arg-type]
