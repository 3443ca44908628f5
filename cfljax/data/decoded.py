"""A cache of decoded images: tensorflow-datasets stores PNG files, and decoding 100,000 of them takes most of a minute."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cfljax.data.npz import load_arrays
from cfljax.errors import DataError
from cfljax.files import written_whole

WORTHWHILE = 5000
"""Samples from which the cache is used; fewer are decoded each time."""
_NAMES = ("x_train", "y_train", "x_test", "y_test")


def decoded(
    source: Path, contents: Callable[[], str], folder: Path, count: int, decode: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The four arrays that `decode()` returns. They are read from `folder`, if it keeps those of files of `source` with the same
    `contents()`; else they are decoded and kept there. `count`: the number of samples."""
    if count < WORTHWHILE:
        return decode()
    file = folder / f"{source.parent.name}-{source.name}-{contents()[:16]}.npz"
    with contextlib.suppress(DataError):  # not kept yet, or damaged
        return load_arrays(file, _NAMES)
    arrays = decode()
    with contextlib.suppress(OSError):  # a full or read-only disk costs time, not the run
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as part, part.open("wb") as f:
            np.savez(f, **arrays)  # type: ignore[arg-type]
    return arrays
