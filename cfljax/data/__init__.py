"""Named data sets as numpy arrays. HOST only: nothing here touches a device, and nothing is downloaded by `load`."""

from __future__ import annotations

import inspect
import zlib
from typing import Any

import numpy as np

from cfljax.data.files import FileOptions, find, folders
from cfljax.options import check
from cfljax.registry import Registry
from cfljax.types import Source

__all__ = ["SOURCES", "FileOptions", "find", "load", "options_for"]

SOURCES = Registry(
    "data set",
    {
        "digits": "cfljax.data.digits:ENTRY",
        "synthetic": "cfljax.data.synthetic:ENTRY",
        "blobs": "cfljax.data.blobs:ENTRY",
        "sent140": "cfljax.data.tweets:ENTRY",
    },
)


def options_for(name: str) -> type:
    """The Options class of a data set, known before any data is read: a registered source's own, else `FileOptions`."""
    return SOURCES.entry(name).options if name in SOURCES else FileOptions


def load(name: str, options: Any = None, path: str | None = None, *, seed: int = 0) -> Source:
    """The data set of that name: a registered source, else local files in `path` or $CFLJAX_DATA, else a set that
    tensorflow-datasets has prepared. `options` is a table (checked here) or an instance of `options_for(name)`; `seed`
    matters to sources that draw their samples."""
    kind = options_for(name)
    if not isinstance(options, kind):
        options = check(kind, dict(options or {}), "data")
    if name not in SOURCES:
        return find(name, path)(options)
    make = SOURCES.entry(name).make
    extra = {"where": folders(path)} if "where" in inspect.signature(make).parameters else {}
    return make(options, np.random.default_rng([seed, zlib.crc32(name.encode())]), **extra)
