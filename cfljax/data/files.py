"""From the name of a data set to its files: the folders that are searched, and the reader for what
is found there."""

from __future__ import annotations

import difflib
import os
import re
from functools import partial
from pathlib import Path

from cfljax.data import cifar, idx, leaf, mapped, npz, prepared
from cfljax.data.bounded import PUBLISHED_MD5
from cfljax.data.sources import SOURCES, Reader
from cfljax.errors import DataError, SpecError
from cfljax.files import cache_folder

_DATA_NAME = re.compile(r"[A-Za-z0-9][\w.+:-]*(/[A-Za-z0-9][\w.+:-]*)*")


def folders(path: str | None) -> list[Path]:
    """List the folders to search: `path` alone if it is given, else $CFLJAX_DATA and the cache's
    `data`."""
    if path is not None:
        where = Path(path).expanduser()
        if not where.exists():
            raise DataError(f'data.path = "{path}": there is no such file or folder')
        return [where]
    named = os.environ.get("CFLJAX_DATA")
    return [*([Path(named).expanduser()] if named else []), cache_folder() / "data"]


def prepared_folders(path: str | None) -> list[Path]:
    """List tensorflow-datasets' folders: `path` alone, else the cache's `tfds`, $TFDS_DATA_DIR or
    its default, $CFLJAX_DATA."""
    if path is not None:
        return folders(path)
    theirs = Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    return [cache_folder() / "tfds", theirs, *folders(None)[:-1]]


def find(name: str, path: str | None = None) -> Reader:
    """Find the reader of the data set of that name without reading the data; a DataError names the
    folders that were searched."""
    if not _DATA_NAME.fullmatch(name):
        raise SpecError(f'data.name = "{name}": a name has letters, digits, "_", "-", "." and "/"')
    for folder in folders(path):
        if (folder / f"{name}.npz").is_file() and mapped.detect(name, folder / name):
            raise DataError(
                f'data.name = "{name}": {folder} has a file {name}.npz and imported data '
                f"{name}/; rename one of them"
            )
        reader = _in_folder(name, folder, path is not None)
        if reader:
            return reader
    for folder in prepared_folders(path):
        reader = prepared.detect(name, folder, cache_folder() / "decoded")
        if reader:
            return reader
    tried = list(dict.fromkeys(map(str, folders(path) + prepared_folders(path))))
    unset = "" if path or os.environ.get("CFLJAX_DATA") else "; CFLJAX_DATA is not set"
    get = (
        f"get it with `python -m cfljax.data prepare {name}`, or copy a file {name}.npz into "
        f"{tried[0]}"
    )
    get = f"get it with `python -m cfljax.data import {name}`" if name.startswith("hf:") else get
    if name.startswith("arrays-"):
        get = "arrays of this name were given in Python: give the same ones to cfljax.run or sweep"
    if name.endswith(".npz"):
        get = (
            f'write name = "{name.removesuffix(".npz")}", with the file in $CFLJAX_DATA or its '
            "place as data.path"
        )
    near = difflib.get_close_matches(
        name, {*SOURCES, *PUBLISHED_MD5, *local_names()}, n=1, cutoff=0.75
    )
    get = f'did you mean "{near[0]}"?' if near and near[0] != name else get
    raise DataError(f'data.name = "{name}": not found in {", ".join(tried)}{unset}; {get}')


def check_free(name: str, searched: list[Path], what: str) -> None:
    """Raise a DataError if one of these folders has a file NAME.npz, which would be read instead of
    `what`."""
    for file in (folder / f"{name}.npz" for folder in searched):
        if file.is_file():
            raise DataError(
                f"{file}: would be read instead of {what}, which has the same name; rename "
                "or remove it"
            )


def local_names(path: str | None = None) -> dict[str, Path]:
    """Map the names that `find` finds to paths, without tensorflow-datasets' (see
    `prepared_names`)."""
    found: dict[str, Path] = {}
    for folder in folders(path):
        for item in sorted([*folder.iterdir(), *folder.glob("hf:*/*")]) if folder.is_dir() else []:
            name = item.relative_to(folder).as_posix().removesuffix("" if item.is_dir() else ".npz")
            if (
                (item.is_dir() or item.suffix == ".npz")
                and _DATA_NAME.fullmatch(name)
                and _in_folder(name, folder, False)
            ):
                found.setdefault(name, item)
    return found


def prepared_names(path: str | None = None) -> dict[str, Path]:
    """Map the names of the data sets that tensorflow-datasets has prepared in the searched folders
    to their paths."""
    found: dict[str, Path] = {}
    for folder in prepared_folders(path):
        for info in sorted(
            [*folder.glob("*/*/dataset_info.json"), *folder.glob("*/*/*/dataset_info.json")]
        ):
            base = info.parent.parent
            found.setdefault(base.relative_to(folder).as_posix(), base)
    return found


def _in_folder(name: str, folder: Path, explicit: bool) -> Reader | None:
    file = folder if folder.is_file() else folder / f"{name}.npz"
    if file.is_file():
        return Reader(
            lambda options: npz.read(name, file, options.classes), partial(list, [("npz", file)])
        )
    for detect in (mapped.detect, idx.detect, cifar.detect, leaf.detect):
        reader = detect(name, folder / name)
        # Beside other data sets, bare files count only where they can be no other's.
        if reader is None and (
            explicit or (name, detect) in {("mnist", idx.detect), ("cifar10", cifar.detect)}
        ):
            reader = detect(name, folder)
        if reader:
            return reader
    return None
