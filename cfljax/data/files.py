"""Where data sets lie on disk: the folders that are searched, and which reader takes what is found there."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path

from cfljax.errors import DataError, SpecError
from cfljax.options import option
from cfljax.types import Source

_NAME = re.compile(r"[A-Za-z0-9][\w.+:-]*(/[A-Za-z0-9][\w.+:-]*)*")


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Options of data sets that are read from files."""

    classes: int | None = option(None, "number of classes; default: the largest label + 1", low=1)
    checksums: bool = option(True, "compare files of well-known data sets with their published checksums")


Reader = Callable[[FileOptions], Source]


def folders(path: str | None) -> list[Path]:
    """The folders to search: `path` alone where it is given, else $CFLJAX_DATA."""
    if path is not None:
        where = Path(path).expanduser()
        if not where.exists():
            raise DataError(f'data.path = "{path}": there is no such file or folder')
        return [where]
    named = os.environ.get("CFLJAX_DATA")
    return [Path(named).expanduser()] if named else []


def find(name: str, path: str | None = None) -> Reader:
    """Something that reads the data set of that name, found without reading it; a DataError says what was tried."""
    if not _NAME.fullmatch(name):
        raise SpecError(f'data.name = "{name}": a name has letters, digits, "_", "-", "." and "/"')
    tried = []
    for folder in folders(path):
        reader = _in_folder(name, folder, path is not None)
        if reader:
            return reader
        tried.append(str(folder))
    looked = " and ".join(tried) if tried else "no folder, as CFLJAX_DATA is not set"
    raise DataError(
        f'data.name = "{name}": not found (looked in {looked}); '
        f"get it with `python -m cfljax.data prepare {name}`, or copy a file {name}.npz into $CFLJAX_DATA"
    )


def _in_folder(name: str, folder: Path, explicit: bool) -> Reader | None:
    from cfljax.data import cifar, idx, leaf, npz

    file = folder if folder.is_file() else folder / f"{name}.npz"
    if file.is_file():
        return lambda options: npz.read(name, file, options.classes)
    for detect in (idx.detect, cifar.detect, leaf.detect):
        reader = detect(name, folder / name)
        # Beside other data sets, bare files count only where they can be no other's.
        if reader is None and (explicit or (name, detect) in {("mnist", idx.detect), ("cifar10", cifar.detect)}):
            reader = detect(name, folder)
        if reader:
            return reader
    return None
