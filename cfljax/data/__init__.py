"""Named data sets as numpy arrays. HOST only: nothing here touches a device, and nothing is downloaded by `load`."""

from __future__ import annotations

import functools
import inspect
import zlib
from typing import Any

import numpy as np

from cfljax.data import arrays
from cfljax.data.files import FileOptions, find, folders
from cfljax.errors import DataError
from cfljax.registry import Registry
from cfljax.registry.checksums import sum_of_files, sum_of_source, sum_or_failure
from cfljax.registry.options import check, files_of
from cfljax.types import Source

__all__ = ["SOURCES", "FileOptions", "contents", "find", "load", "loaded", "options_for"]

SOURCES = Registry(
    "data set",
    {
        "digits": "cfljax.data.digits:ENTRY",
        "synthetic": "cfljax.data.synthetic:ENTRY",
        "blobs": "cfljax.data.blobs:ENTRY",
        "sent140": "cfljax.data.tweets:ENTRY",
    },
    "cfljax.data",
)


def options_for(name: str) -> type:
    """The Options class of a data set, known before any data is read: a registered source's own, else `FileOptions`."""
    return SOURCES.entry(name).options if name in SOURCES else FileOptions


def reads_files(name: str) -> bool:
    """Whether a data set of that name comes from the user's files, and not from the program."""
    return name not in SOURCES or "where" in inspect.signature(SOURCES.entry(name).make).parameters


def load(name: str, options: Any = None, path: str | None = None, *, seed: int = 0) -> Source:
    """The data set of that name: a registered source, else local files in `path` or $CFLJAX_DATA, else a set that
    tensorflow-datasets has prepared. `options` is a table (checked here) or an instance of `options_for(name)`; `seed`
    matters to sources that draw their samples."""
    kind = options_for(name)
    if not isinstance(options, kind):
        options = check(kind, dict(options or {}), "data")
    if name not in SOURCES:
        return find(name, path).read(options)
    make = SOURCES.entry(name).make
    extra = {"where": folders(path)} if _reads(name, path) else {}
    made = make(options, np.random.default_rng([seed, zlib.crc32(name.encode())]), **extra)
    return made if SOURCES.origin(name) is None else _checked(name, made)


def _reads(name: str, path: str | None) -> bool:
    if path is not None and not reads_files(name):
        raise DataError(f'data.path = "{path}": "{name}" is built in and reads no files; give your data another name')
    return reads_files(name)


_summed: dict[tuple[Any, ...], Source] = {}
"""The user's own data set that was summed last: reading it again may take long."""


def contents(name: str, options: Any, path: str | None = None, *, seed: int = 0) -> str:
    """A sum of what `load` would read now: of its files; of the arrays of a user's own source, which may read anything. "" for
    what name, options and seed decide alone."""
    files = [(f"data.{key}", file) for key, file in files_of(options).items()]  # which may change as the others do
    if name not in SOURCES:
        return sum_of_files([*files, *find(name, path).files()])
    entry = SOURCES.entry(name)
    if SOURCES.origin(name) is not None:
        return sum_or_failure(lambda: _sum_own(name, options, path, seed))
    if _reads(name, path) and entry.files is not None:
        files += entry.files(options, folders(path))
    return sum_of_files(files) if files else ""


def _sum_own(name: str, options: Any, path: str | None, seed: int) -> str:
    source = load(name, options, path, seed=seed)
    _summed.clear()
    _summed[name, options, path, seed, found := sum_of_source(source)] = source
    return found


@functools.lru_cache(maxsize=2)
def loaded(name: str, options: Any, path: str | None, seed: int, wanted: str) -> Source:
    """`load`, and a DataError where that is no longer what `contents` had found: nobody trains on what the id does not say."""
    source = _summed.pop((name, options, path, seed, wanted), None)
    if source is not None:
        return source
    source = load(name, options, path, seed=seed)
    own = name in SOURCES and SOURCES.origin(name) is not None
    if (sum_of_source(source) if own else contents(name, options, path, seed=seed)) != wanted:
        raise DataError(f'data "{name}": is not what it was when the runs were planned; start again')
    return source


def _checked(name: str, made: Any) -> Source:
    """What a user's own source returned, as a Source whose arrays are what they should be."""
    z = made._asdict() if isinstance(made, Source) else made
    missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if not isinstance(z, dict) or key not in z]
    if missing:
        raise DataError(f'data "{name}": must return a Source or a dict of arrays; it has no {missing[0]}')
    part = {key: np.asarray(value) for key, value in z.items() if value is not None}
    pairs = {what: (part[f"{what}_train"], part.get(f"{what}_test")) for what in ("user", "population") if f"{what}_train" in part}
    whole = arrays.source(
        name,
        f'data "{name}"',
        (part["x_train"], part["y_train"]),
        (part["x_test"], part["y_test"]),
        classes=z.get("classes"),
        users=pairs.get("user"),
        populations=pairs.get("population"),
        table=part.get("table"),
    )
    return whole if "population" not in part else whole._replace(population=part["population"])
