"""Checksums of data. They are part of a run's id, so that results of two versions of a file never
mix, whatever its path. The checksum of a large file is cached until the file's size, times or inode
change."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfljax.errors import DataError
from cfljax.files import cache_folder, write_whole

if TYPE_CHECKING:
    from cfljax.types import Parts, Source

# A file of at least this many bytes has its checksum cached; a smaller one is read each time
MIN_CACHED_BYTES = 1 << 20
SETTLED_SECONDS = 2.0
"""Seconds after a file's last change before its checksum is cached: two versions within one tick of
a coarse clock have the same time."""


def hash_files(files: Iterable[tuple[str, Path]]) -> str:
    """Compute the SHA-256 over the contents of (role, file). It does not depend on the names and
    paths of the files."""
    digest = hashlib.sha256()
    for role, file in sorted(files):
        digest.update(f"{role} {hash_file(file)}\n".encode())
    return digest.hexdigest()


def hash_file(file: Path) -> str:
    """Compute the SHA-256 of a file's contents, 64 hexadecimal digits."""
    try:
        before = _file_state(file)
        cached = (
            cache_folder()
            / "sums"
            / hashlib.sha256(repr((os.path.realpath(file), before)).encode()).hexdigest()[:32]
        )
        if (
            before[1] >= MIN_CACHED_BYTES
            and len(kept := cached.read_text("utf-8", "replace") if cached.is_file() else "") == 64
        ):
            return kept
        with file.open("rb") as f:
            found = hashlib.file_digest(f, "sha256").hexdigest()
        after = _file_state(file)
    except OSError as e:
        raise DataError(f"{file}: cannot be read ({e.strerror or e})") from e
    if after != before:
        raise DataError(f"{file}: changes while it is read; start again when it is complete")
    # A file that has just changed may change again within one tick of the clock, and keep its time
    if before[1] >= MIN_CACHED_BYTES and time.time() - max(before[2:]) / 1e9 > SETTLED_SECONDS:
        # A full or read-only disk costs time at the next start, nothing else
        with contextlib.suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True)
            with write_whole(cached) as part:
                part.write_text(found, "utf-8")
    return found


def _file_state(file: Path) -> list[int]:
    """Return what changes when the file does: inode, size, and the times of contents and inode."""
    stat = file.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def hash_data_set(source: Source) -> str:
    """Compute the SHA-256 over everything in a data set but its name."""
    return _hash_values(
        [(name, value) for name, value in source._asdict().items() if name != "name"]
    )


def hash_partition(parts: Parts) -> str:
    """Compute the SHA-256 over the result of a partition: which client holds which samples."""
    named = {
        field.name: getattr(parts, field.name)
        for field in dataclasses.fields(parts)
        if field.name != "by_group"
    }
    # Hashes of partitions from before there was this field
    if named["by_label"] is None:
        del named["by_label"]
    made = named.pop("source")
    return _hash_values([*named.items(), ("source", "" if made is None else hash_data_set(made))])


def hash_or_failure(make: Callable[[], str]) -> str:
    """Return what `make` returns, the checksum of a user's data set or partition. If it raises
    anything but a DataError, return the checksum of the error: the runs will fail in the same way,
    and are recorded as failed."""
    try:
        return make()
    except DataError:
        raise
    except Exception as error:
        return hashlib.sha256(f"{type(error).__name__}: {error}".encode()).hexdigest()


def _hash_values(named: list[tuple[str, object]]) -> str:
    """Compute the SHA-256 over (name, value): arrays with their type and shape, lists item by item,
    words and integers as text."""
    digest = hashlib.sha256()
    for name, value in named:
        if isinstance(value, list):
            value = _hash_values([(str(at), each) for at, each in enumerate(value)])
        if value is None or isinstance(value, (int, str)):
            digest.update(f"{name} {value}\n".encode())
        else:
            array = np.ascontiguousarray(value)
            digest.update(f"{name} {array.dtype.str}{list(array.shape)}\n".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
