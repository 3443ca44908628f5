"""IDX files as MNIST's home page ships them, `.gz` or plain; also Fashion-MNIST's and EMNIST's."""

from __future__ import annotations

import gzip
import itertools
import math
import re
import struct
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import check_md5, parser_errors
from cfljax.data.sources import FileOptions, Reader
from cfljax.errors import DataError
from cfljax.types import Source

_PART_WORDS = {"train": ("train",), "test": ("t10k", "test")}
_EMNIST = re.compile(r"emnist([/_-](balanced|byclass|bymerge|letters|digits|mnist))?(:.*)?")
_FILE_KINDS = ("images-idx3", "labels-idx1")


def detect(name: str, folder: Path) -> Reader | None:
    """Return a reader if the folder holds training images in IDX format."""
    for prefix in prefixes(name):
        if _file(folder, prefix, "train", "images-idx3"):
            return Reader(partial(read, name, folder, prefix), partial(_files, folder, prefix))
    return None


def _files(folder: Path, prefix: str) -> list[tuple[str, Path]]:
    found = (
        (f"{part} {kind}", _file(folder, prefix, part, kind))
        for part in _PART_WORDS
        for kind in _FILE_KINDS
    )
    return [(role, file) for role, file in found if file is not None]


def prefixes(name: str) -> tuple[str, ...]:
    """List what file names may begin with: `emnist-balanced-` for `emnist/balanced`, then
    nothing."""
    return (name.replace("/", "-").replace("_", "-") + "-", "")


def read(name: str, folder: Path, prefix: str, options: FileOptions) -> Source:
    """Read the data set from four IDX files whose names begin with `prefix`."""
    found = {
        (part, kind): _file(folder, prefix, part, kind)
        for part in _PART_WORDS
        for kind in _FILE_KINDS
    }
    for (part, kind), file in found.items():
        if file is None:
            raise DataError(f"{folder}: has no {prefix}{_PART_WORDS[part][0]}-{kind}-ubyte.gz")
        if options.checksums:
            check_md5(name, file)
    values = {key: read_idx(cast(Path, file)) for key, file in found.items()}
    named = {}
    for part in _PART_WORDS:
        named[f"x_{part}"], named[f"y_{part}"] = convert_emnist(
            name, values[part, "images-idx3"], values[part, "labels-idx1"]
        )
    return arrays.source(name, str(folder), named, options.classes)


def convert_emnist(name: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Images, labels). EMNIST's files have rows and columns exchanged, and the labels of its
    letters run from 1 to 26: its images are turned upright, and its labels begin at 0. Other data
    sets stay as they are, also one whose name begins with emnist."""
    if _EMNIST.fullmatch(name) and x.ndim > 2:
        x = np.ascontiguousarray(x.swapaxes(1, 2))
    return x, y.astype(np.int64) - 1 if is_letters(name) else y


def is_letters(name: str) -> bool:
    """Whether the data set is EMNIST Letters."""
    return bool(_EMNIST.fullmatch(name)) and name.partition(":")[0].endswith("letters")


def _file(folder: Path, prefix: str, part: str, kind: str) -> Path | None:
    names = itertools.product(_PART_WORDS[part], (kind, kind.replace("-", ".")), (".gz", ""))
    files = (folder / f"{prefix}{word}-{joined}-ubyte{ending}" for word, joined, ending in names)
    return next((file for file in files if file.is_file()), None)


def read_idx(file: Path) -> np.ndarray:
    """Return u8[...]: the array of one IDX file."""
    again = ": copy or download the file again"
    with (
        parser_errors(file, then=again),
        gzip.open(file) if file.suffix == ".gz" else file.open("rb") as f,
    ):
        content = f.read()
    if content[:3] != b"\0\0\x08" or not 1 <= (content[3:4] or b"\0")[0] <= 4:
        raise DataError(
            f"{file}: begins with {content[:4].hex() or 'nothing'}; an IDX file of bytes "
            f"begins with 000008{again}"
        )
    start = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}i", content[4:start].ljust(start - 4, b"\0"))
    held = len(content) - start
    if min(shape) < 0 or math.prod(shape) != held:
        raise DataError(f"{file}: claims shape {list(shape)} and holds {max(held, 0)} bytes{again}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
