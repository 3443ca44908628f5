"""Reading files that may be damaged or hostile: whatever parsers raise becomes one line, and
published checksums are verified."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from cfljax.errors import DataError
from cfljax.registry.options import Value

_PUBLISHED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
# MD5 of the files, as the data sets' home pages and torchvision publish them
PUBLISHED_MD5: dict[str, dict[str, str]] = _PUBLISHED["md5"]
# The addresses of these files
ORIGINAL_URLS: dict[str, str] = _PUBLISHED["urls"]


def check_md5(name: str, file: Path, file_name: str = "") -> None:
    """Raise a DataError if a file of a well-known data set is not the published one. Files without
    a published checksum pass."""
    published = PUBLISHED_MD5.get(name, {}).get(file_name or file.name)
    if published is None:
        return
    with file.open("rb") as f:
        found = hashlib.file_digest(f, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != published:
        raise DataError(
            f"{file}: is not the published {name} file (MD5 {found}, published {published}): "
            "download it again, "
            f"or set data.checksums = false if it is meant to differ"
        )


def read_json(
    file: Path, pairs_hook: Callable[[list[tuple[str, Value]]], Value] | None = None
) -> Value:
    """Read a JSON file; a DataError says why it cannot be read. `pairs_hook` makes each object from
    its entries."""
    with parser_errors(file, "as JSON"):
        return json.loads(file.read_text("utf-8"), object_pairs_hook=pairs_hook)


@contextlib.contextmanager
def parser_errors(where: Path | str, form: str = "", then: str = "") -> Iterator[None]:
    """Turn any error of a parser into the DataError `WHERE: cannot be read FORM (REASON)THEN`:
    damaged files raise anything."""
    try:
        yield
    except DataError:
        raise
    except MemoryError as e:
        # Also if a header claims what the file does not hold
        raise DataError(f"{where}: does not fit into memory") from e
    except Exception as e:
        raise DataError(
            f"{where}: cannot be read{form and f' {form}'} ({one_line_reason(e)}){then}"
        ) from e


def one_line_reason(error: BaseException) -> str:
    """Format the error as one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
