"""CIFAR-10 and CIFAR-100 in their binary version: the archive as downloaded, or its files."""

from __future__ import annotations

import gzip
import tarfile
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import Unfolding, check_md5, check_size, opened, read_exactly, readable
from cfljax.data.sources import FileOptions, Reader
from cfljax.errors import DataError
from cfljax.types import Source


class _Form(NamedTuple):
    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    labels: int
    """Label bytes before the pixels; the last one counts (CIFAR-100's first is the coarse label)."""
    classes: int


_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
FORMS = (
    _Form("cifar-10-binary.tar.gz", "cifar-10-batches-bin", _BATCHES, "test_batch.bin", 1, 10),
    _Form("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), "test.bin", 2, 100),
)
_PIXELS = 3 * 32 * 32


def detect(name: str, folder: Path) -> Reader | None:
    """A reader, where the folder holds the archive or the first file of it."""
    for form in FORMS:
        archive = folder / form.archive
        if archive.is_file():
            return Reader(partial(_from_archive, name, archive, form), partial(list, [("archive", archive)]))
        for place in (folder, folder / form.folder):
            if (place / form.train[0]).is_file():
                return Reader(partial(_from_files, name, place, form), partial(_files, place, form))
    return None


def _files(folder: Path, form: _Form) -> list[tuple[str, Path]]:
    return [(name, folder / name) for name in (*form.train, form.test) if (folder / name).is_file()]


def _from_files(name: str, folder: Path, form: _Form, options: FileOptions) -> Source:
    parts = {}
    for file_name in (*form.train, form.test):
        file = folder / file_name
        if not file.is_file():
            raise DataError(f"{folder}: has no {file_name}; {form.archive} holds it")
        with opened(file) as f:
            parts[file_name] = _records(f, file.stat().st_size, form, str(file))
    return _source(name, str(folder), parts, form, options)


def _from_archive(name: str, file: Path, form: _Form, options: FileOptions) -> Source:
    if options.checksums:
        check_md5(name, file)
    parts, claimed = {}, 0
    with (
        readable(file, then=": download it again"),
        gzip.open(file) as packed,
        tarfile.open(fileobj=Unfolding(cast(IO[bytes], packed), file), mode="r|") as archive,
    ):
        for member in archive:  # as a stream: a header may claim gigabytes, too
            base = member.name.rsplit("/", 1)[-1]
            claimed += member.size
            check_size(claimed, file)
            content = archive.extractfile(member) if member.isreg() and base in (*form.train, form.test) else None
            if content:
                parts[base] = _records(content, member.size, form, f"{file}: {base}")
    missing = [n for n in (*form.train, form.test) if n not in parts]
    if missing:
        raise DataError(f"{file}: holds no {missing[0]}")
    return _source(name, str(file), parts, form, options)


def _records(f: IO[bytes], size: int, form: _Form, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(u8[n, 32, 32, 3], u8[n]) from records of label bytes and three planes of pixels."""
    record = form.labels + _PIXELS
    if size == 0 or size % record:
        raise DataError(f"{where}: has {size} bytes, which is not a whole number of records of {record}: download it again")
    rows = np.frombuffer(read_exactly(f, size, where), np.uint8).reshape(-1, record)
    x = rows[:, form.labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return x, arrays.labels(rows[:, form.labels - 1], where, form.classes)


def _source(name: str, where: str, parts: dict[str, tuple[np.ndarray, np.ndarray]], form: _Form, options: FileOptions) -> Source:
    x, y = (np.concatenate([parts[n][side] for n in form.train]) for side in (0, 1))
    x_test, y_test = parts[form.test]
    named = {"x_train": np.ascontiguousarray(x), "y_train": y, "x_test": np.ascontiguousarray(x_test), "y_test": y_test}
    return arrays.source(name, where, named, options.classes or form.classes)
