"""Named data sets as numpy arrays. HOST only: nothing here touches a device, and nothing is
downloaded by `load`."""

from __future__ import annotations

import functools
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from cfljax.data import arrays
from cfljax.data.files import find, folders
from cfljax.data.sources import (
    SOURCES,
    DrawSource,
    FileOptions,
    ReadSource,
    SourceArrays,
    reads_folders,
)
from cfljax.errors import DataError
from cfljax.registry.checksums import hash_data_set, hash_files, hash_or_failure
from cfljax.registry.options import Options, Value, check, list_files
from cfljax.types import Source

__all__ = ["SOURCES", "FileOptions", "data_checksum", "find", "load", "load_checked", "options_for"]


def options_for(name: str) -> type:
    """Return the Options class of a data set before reading any data: the registered source's, or
    `FileOptions`."""
    return SOURCES.entry(name).options if name in SOURCES else FileOptions


def reads_files(name: str) -> bool:
    """Whether a data set of that name comes from the user's files, and not from the program."""
    return name not in SOURCES or reads_folders(SOURCES.entry(name).make)


def load(name: str, options: Any = None, path: str | None = None, *, seed: int = 0) -> Source:
    """Load the data set of that name: a registered source, else local files in `path` or
    $CFLJAX_DATA, else a set that tensorflow-datasets has prepared. `options` is a table (checked
    here) or an instance of `options_for(name)`; `seed` matters to sources that draw their
    samples."""
    kind = options_for(name)
    if not isinstance(options, kind):
        options = check(kind, dict(options or {}), "data")
    if name not in SOURCES:
        return find(name, path).read(options)
    make = SOURCES.entry(name).make
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    where = _folders(name, path)
    if reads_folders(make):
        return _to_source(name, cast(ReadSource, make)(options, rng, where=where))
    return _to_source(name, cast(DrawSource, make)(options, rng))


def _folders(name: str, path: str | None) -> list[Path]:
    """List the folders that are searched for the data set; none if the program makes it without
    files."""
    if reads_files(name):
        return folders(path)
    if path is not None:
        raise DataError(
            f'data.path = "{path}": "{name}" is built in and reads no files; give your data '
            "another name"
        )
    return []


# The user's data set whose checksum was computed last: reading it again may take long
_last_hashed: dict[tuple[object, ...], Source] = {}


def data_checksum(name: str, options: Options, path: str | None = None, *, seed: int = 0) -> str:
    """Compute a checksum of what `load` would read now: of its files, or of the arrays that a
    user's program returns, which may read anything. It is "" for a data set that name, options and
    seed determine."""
    # Files that an option names may change, too
    files = [(f"data.{key}", file) for key, file in list_files(options).items()]
    if name not in SOURCES:
        return hash_files([*files, *find(name, path).files()])
    if SOURCES.origin(name) is not None:
        return hash_or_failure(lambda: _checksum_user_data(name, options, path, seed))
    where = _folders(name, path)
    entry = SOURCES.entry(name)
    if where and entry.files is not None:
        files += entry.files(options, where)
    return hash_files(files) if files else ""


def _checksum_user_data(name: str, options: Options, path: str | None, seed: int) -> str:
    source = load(name, options, path, seed=seed)
    _last_hashed.clear()
    _last_hashed[name, options, path, seed, found := hash_data_set(source)] = source
    return found


@functools.lru_cache(maxsize=2)
def load_checked(name: str, options: Options, path: str | None, seed: int, wanted: str) -> Source:
    """Load the data set as `load` does; a DataError if its `contents` are not the `wanted` ones of
    the run's id."""
    source = _last_hashed.pop((name, options, path, seed, wanted), None)
    if source is not None:
        return source
    source = load(name, options, path, seed=seed)
    if name in SOURCES and SOURCES.origin(name) is not None:
        found = hash_data_set(source)
    else:
        found = data_checksum(name, options, path, seed=seed)
    if found != wanted:
        raise DataError(
            f'data "{name}": has changed since the runs were planned; start the sweep again'
        )
    return source


def _to_source(name: str, made: SourceArrays) -> Source:
    """Check what the program of a data set has returned."""
    if SOURCES.origin(name) is None and isinstance(made, Source):
        return made
    named = made._asdict() if isinstance(made, Source) else made
    missing = [
        key
        for key in ("x_train", "y_train", "x_test", "y_test")
        if not isinstance(named, dict) or key not in named
    ]
    if missing:
        raise DataError(
            f'data "{name}": must return a Source or a dict of arrays; it has no {missing[0]}'
        )
    part = {key: np.asarray(value) for key, value in named.items() if value is not None}
    # `classes` as it was given: a run's id tells numpy's numbers from Python's
    classes: Value = named.get("classes")
    whole = arrays.source(name, f'data "{name}"', part, classes)
    return whole if "population" not in part else whole._replace(population=part["population"])
