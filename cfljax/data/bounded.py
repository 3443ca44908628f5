"""Reading files that may be damaged or hostile: sizes are compared before memory is taken, and published checksums are verified."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from cfljax.errors import DataError
from cfljax.registry.options import Value

_FREE = 64 << 20
"""Bytes that any file may claim to hold, however small it is."""
_RATIO = 200
"""Arrays may be this many times larger than the file that holds them (real images: 2 to 20)."""

PUBLISHED_MD5 = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    "kmnist": {
        "train-images-idx3-ubyte.gz": "bdb82020997e1d708af4cf47b453dcf7",
        "train-labels-idx1-ubyte.gz": "e144d726b3acfaa3e44228e80efcd344",
        "t10k-images-idx3-ubyte.gz": "5c965bf0a639b31b8f53240b1b52f4d7",
        "t10k-labels-idx1-ubyte.gz": "7320c461ea6c1c855c0b718fb2a4b134",
    },
    "cifar10": {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    "cifar100": {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
}
"""MD5 of the files, as the data sets' home pages and torchvision publish them."""


def check_size(claimed: int, file: Path, *more: Path) -> None:
    """A DataError where a file (or several) claims to hold far more than its own size can."""
    size = sum(f.stat().st_size for f in (file, *more))
    if claimed > max(_FREE, _RATIO * size):
        raise DataError(f"{file}: claims {claimed} bytes of data and has only {size} bytes; it is damaged, or of another format")


def check_md5(name: str, file: Path, file_name: str = "") -> None:
    """A DataError where a file of a well-known data set is not the published one. Files without a published checksum pass."""
    published = PUBLISHED_MD5.get(name, {}).get(file_name or file.name)
    if published is None:
        return
    with file.open("rb") as f:
        found = hashlib.file_digest(f, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != published:
        raise DataError(
            f"{file}: is not the published {name} file (MD5 {found}, published {published}): download it again, "
            f"or set data.checksums = false if it is meant to differ"
        )


def opened(file: Path) -> IO[bytes]:
    """The file, opened for reading."""
    try:
        return file.open("rb")
    except OSError as e:
        raise DataError(f"{file}: cannot be read ({e.strerror or reason(e)})") from e


def read_exactly(f: IO[bytes], size: int, where: str) -> bytearray:
    """The next `size` bytes. Memory is taken as bytes arrive, so that a file which claims too much costs none."""
    content = bytearray()
    with readable(where, then=": copy or download the file again"):
        while len(content) < size:
            piece = f.read(min(1 << 22, size - len(content)))
            if not piece:
                raise DataError(f"{where}: ends after {len(content)} of {size} bytes: copy or download the file again")
            content += piece
    return content


def at_end(f: IO[bytes], where: str) -> None:
    """A DataError if more bytes follow. Reading to the end also makes gzip compare its checksum."""
    with readable(where, then=": copy or download the file again"):
        if f.read(1):
            raise DataError(f"{where}: holds more bytes than its header says")


class Unfolding(io.RawIOBase):
    """A compressed stream that raises a DataError where it decompresses to far more than a real file of its size would."""

    def __init__(self, stream: IO[bytes], file: Path, ratio: int = 20):
        self._stream, self._file = stream, file
        self._left = max(_FREE, ratio * file.stat().st_size)

    def readable(self) -> bool:
        """True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Write the next bytes into the buffer; how many there were."""
        view = memoryview(buffer)
        piece = self._stream.read(min(len(view), 1 << 20))
        self._left -= len(piece)
        if self._left < 0:
            raise DataError(
                f"{self._file}: its {self._file.stat().st_size} bytes decompress to far more than they should; not read"
            )
        view[: len(piece)] = piece
        return len(piece)


def read_json(file: Path, pairs_hook: Callable[[list[tuple[str, Value]]], Value] | None = None) -> Value:
    """The content of a JSON file; a DataError where it cannot be read. `pairs_hook` makes each object from its entries."""
    with readable(file, "as JSON"):
        return json.loads(file.read_text("utf-8"), object_pairs_hook=pairs_hook)


@contextlib.contextmanager
def readable(where: Path | str, form: str = "", then: str = "") -> Iterator[None]:
    """A context in which any error, as broken and hostile files provoke every kind in parsers, becomes the DataError
    `WHERE: cannot be read FORM (REASON)THEN`. A DataError stays as it is, and so does
    running out of memory."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as e:
        raise DataError(f"{where}: cannot be read{form and f' {form}'} ({reason(e)}){then}") from e


def reason(error: BaseException) -> str:
    """The error as one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
