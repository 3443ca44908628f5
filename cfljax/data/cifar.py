"""CIFAR-10 and CIFAR-100 in their binary version: the archive as downloaded, or its files."""

from __future__ import annotations

import tarfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import check_md5, parser_errors
from cfljax.data.sources import FileOptions, Reader
from cfljax.errors import DataError
from cfljax.types import Source


class _Form(NamedTuple):
    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    # Label bytes before the pixels; the last one is the label (CIFAR-100's first is the coarse one)
    labels: int
    classes: int


_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
ARCHIVES = (
    _Form("cifar-10-binary.tar.gz", "cifar-10-batches-bin", _BATCHES, "test_batch.bin", 1, 10),
    _Form("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), "test.bin", 2, 100),
)
_PIXELS = 3 * 32 * 32
COARSE_LABELS = np.frombuffer(
    bytes.fromhex(
        "04010e08000607071203030e0912070b0309070b060b050a07"
        "060d0f030f000b010a0c0e10090b05051308080f0d0e11120a"
        "100411040200110412110a03020c0c100c010913020a000110"
        "0c090d0f0d101302040613050508131201020f060011080e0d"
    ),
    np.uint8,
).astype(np.int32)
"""The coarse label of each of CIFAR-100's classes, for copies of the data set without coarse
labels."""


def detect(name: str, folder: Path) -> Reader | None:
    """Return a reader if the folder holds the archive or its first file."""
    for form in ARCHIVES:
        archive = folder / form.archive
        if archive.is_file():
            return Reader(
                partial(_from_archive, name, archive, form), partial(list, [("archive", archive)])
            )
        for path in (folder, folder / form.folder):
            if (path / form.train[0]).is_file():
                return Reader(partial(_from_files, name, path, form), partial(_files, path, form))
    return None


def _files(folder: Path, form: _Form) -> list[tuple[str, Path]]:
    return [(name, folder / name) for name in (*form.train, form.test) if (folder / name).is_file()]


def _from_files(name: str, folder: Path, form: _Form, options: FileOptions) -> Source:
    parts = {}
    for file_name in (*form.train, form.test):
        file = folder / file_name
        if not file.is_file():
            raise DataError(f"{folder}: has no {file_name}; {form.archive} holds it")
        with parser_errors(file):
            parts[file_name] = _records(file.read_bytes(), form, str(file))
    return _source(name, str(folder), parts, form, options)


def _from_archive(name: str, file: Path, form: _Form, options: FileOptions) -> Source:
    if options.checksums:
        check_md5(name, file)
    parts = {}
    with parser_errors(file, then=": download it again"), tarfile.open(file, "r:gz") as archive:
        for member in archive:
            base = member.name.rsplit("/", 1)[-1]
            if not member.isreg() or base not in (*form.train, form.test):
                continue
            content = archive.extractfile(member)
            if content:
                parts[base] = _records(content.read(), form, f"{file}: {base}")
    missing = [n for n in (*form.train, form.test) if n not in parts]
    if missing:
        raise DataError(f"{file}: holds no {missing[0]}")
    return _source(name, str(file), parts, form, options)


_Records = tuple[np.ndarray, np.ndarray, np.ndarray]


def _records(content: bytes, form: _Form, where: str) -> _Records:
    """Return u8[n, 32, 32, 3] images, i32[n] labels and u8[n] coarse labels from records of label
    bytes and three planes of pixels."""
    record = form.labels + _PIXELS
    size = len(content)
    if size == 0 or size % record:
        raise DataError(
            f"{where}: has {size} bytes, which is not a whole number of records of {record}: "
            "download it again"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    x = rows[:, form.labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return x, arrays.labels(rows[:, form.labels - 1], where, form.classes), rows[:, 0]


def _source(
    name: str, where: str, parts: dict[str, _Records], form: _Form, options: FileOptions
) -> Source:
    train = [parts[name] for name in form.train]
    x = np.concatenate([images for images, _, _ in train])
    y = np.concatenate([labels for _, labels, _ in train])
    coarse = np.concatenate([coarse_labels for _, _, coarse_labels in train])
    x_test, y_test, coarse_test = parts[form.test]
    named = {
        "x_train": np.ascontiguousarray(x),
        "y_train": y,
        "x_test": np.ascontiguousarray(x_test),
        "y_test": y_test,
    }
    if form.labels == 2:
        named |= {"y_coarse_train": coarse, "y_coarse_test": coarse_test}
    return arrays.source(name, where, named, options.classes or form.classes)
