"""Reading files that may be damaged or hostile: whatever parsers raise becomes one line, and published checksums are verified."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from cfljax.errors import DataError
from cfljax.registry.options import Value

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


def check_md5(name: str, file: Path, file_name: str = "") -> None:
    """Raise a DataError if a file of a well-known data set is not the published one. Files without a published checksum pass."""
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


def read_json(file: Path, pairs_hook: Callable[[list[tuple[str, Value]]], Value] | None = None) -> Value:
    """Read a JSON file; a DataError says why it cannot be read. `pairs_hook` makes each object from its entries."""
    with parser_errors(file, "as JSON"):
        return json.loads(file.read_text("utf-8"), object_pairs_hook=pairs_hook)


@contextlib.contextmanager
def parser_errors(where: Path | str, form: str = "", then: str = "") -> Iterator[None]:
    """Turn any error of a parser into the DataError `WHERE: cannot be read FORM (REASON)THEN`: damaged files raise anything."""
    try:
        yield
    except DataError:
        raise
    except MemoryError as e:  # also if a header claims what the file does not hold
        raise DataError(f"{where}: does not fit into memory") from e
    except Exception as e:
        raise DataError(f"{where}: cannot be read{form and f' {form}'} ({one_line_reason(e)}){then}") from e


def one_line_reason(error: BaseException) -> str:
    """Format the error as one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
