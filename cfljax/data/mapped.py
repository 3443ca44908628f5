"""Imported data: `.npy` files and a manifest `cfljax.json`, read by memory map, shared by
processes. Nothing can run code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import parser_errors
from cfljax.data.sources import Reader
from cfljax.errors import DataError, StoreError
from cfljax.files import write_whole
from cfljax.registry.options import Table, Value
from cfljax.types import Source

MANIFEST = "cfljax.json"
FORMAT = "cfljax data 1"
NEEDED_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
ARRAY_NAMES = (
    *NEEDED_ARRAYS,
    "user_train",
    "user_test",
    "population_train",
    "population_test",
    "table",
    "coarse",
)
_AGAIN = "; import the data again"


def detect(name: str, folder: Path) -> Reader | None:
    """Return a reader if the folder holds imported data."""
    if not (folder / MANIFEST).is_file():
        return None
    return Reader(
        lambda options: read(name, folder, options.classes, options.checksums),
        partial(_files, folder),
    )


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Return (role, file) of the arrays. The number of classes is part of the role, as it also
    decides what is read."""
    manifest = _read_manifest(folder / MANIFEST)
    return [
        (f"{key} of {manifest['classes']} classes", folder / f"{key}.npy")
        for key in manifest["arrays"]
    ]


def read(name: str, folder: Path, classes: int | None = None, checksums: bool = True) -> Source:
    """Read the data set in the folder; each file is compared with the manifest, by its SHA-256
    unless `checksums` is off."""
    manifest = _read_manifest(folder / MANIFEST)
    z = {
        key: _map_array(folder, key, entry, checksums) for key, entry in manifest["arrays"].items()
    }
    return arrays.source(name, str(folder), z, classes or manifest["classes"])


def _read_manifest(file: Path) -> Table:
    with parser_errors(file, then=_AGAIN):
        found = json.loads(file.read_text("utf-8"))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f'{file}: is not in the form "{FORMAT}"{_AGAIN}')
    entries = found.get("arrays")
    classes = found.get("classes")
    if (
        not isinstance(entries, dict)
        or not set(NEEDED_ARRAYS) <= set(entries) <= set(ARRAY_NAMES)
        or not isinstance(classes, int)
    ):
        raise DataError(
            f"{file}: must list the arrays {', '.join(NEEDED_ARRAYS)} and the number of "
            f"classes{_AGAIN}"
        )
    return found


def _map_array(folder: Path, key: str, entry: Value, checksums: bool) -> np.ndarray:
    file = folder / f"{key}.npy"
    says = entry if isinstance(entry, dict) else {}
    with parser_errors(file, then=_AGAIN):
        if file.stat().st_size != says.get("bytes") or (
            checksums and _sha256(file) != says.get("sha256")
        ):
            raise DataError(f"{file}: has been changed or damaged{_AGAIN}")
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    if (
        found.dtype.str != says.get("dtype")
        or list(found.shape) != says.get("shape")
        or found.dtype.kind not in "biuf"
    ):
        raise DataError(
            f"{file}: is {found.dtype.str}{list(found.shape)}, not what {MANIFEST} says{_AGAIN}"
        )
    return found


def read_names(folder: Path, what: str = "class_names") -> list[str] | None:
    """Return the names of the classes of imported data, or of its `owners`; None if nothing was
    imported or it has no names."""
    return _read_manifest(folder / MANIFEST).get(what) if (folder / MANIFEST).is_file() else None


def read_tokens(folder: Path) -> Table | None:
    """Return the vocabulary of imported texts (`cfljax.data.tokens`); None if there are no texts,
    or nothing was imported."""
    return (
        _read_manifest(folder / MANIFEST).get("tokens") if (folder / MANIFEST).is_file() else None
    )


def write(
    source: Source,
    folder: Path,
    class_names: list[str],
    origin: str,
    replace: bool = False,
    tokens: Table | None = None,
    owners: list[str] | None = None,
) -> None:
    """Write a data set to a folder, which appears when complete, with its texts' vocabulary and its
    domains' names."""
    if folder.exists() and not replace:
        raise DataError(f"{folder}: exists already; choose another --name, or give --replace")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        entries = {key: _write_array(part, key, value) for key, value in _arrays(source).items()}
        manifest = {
            "format": FORMAT,
            "classes": source.classes,
            "class_names": class_names,
            "origin": origin,
            "arrays": entries,
        }
        manifest |= {
            key: value
            for key, value in (("tokens", tokens), ("owners", owners))
            if value is not None
        }
        with write_whole(part / MANIFEST) as file:
            file.write_text(json.dumps(manifest, indent=1), "utf-8")
        old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
        if folder.exists():
            folder.replace(old)
        part.replace(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as e:
        raise StoreError(
            f"{folder}: cannot be written ({e.strerror or e}); make room, or choose another --dir"
        ) from e
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _arrays(source: Source) -> dict[str, np.ndarray]:
    found = {
        key: getattr(source, key)
        for key in (*NEEDED_ARRAYS, "user_train", "user_test", "table", "coarse")
    }
    if source.population is not None:
        for side in ("train", "test"):
            users = found[f"user_{side}"]
            found[f"population_{side}"] = None if users is None else source.population[users]
    return {key: value for key, value in found.items() if value is not None}


def _write_array(folder: Path, key: str, value: np.ndarray) -> Table:
    file = folder / f"{key}.npy"
    with write_whole(file) as part, part.open("wb") as f:
        np.save(f, np.ascontiguousarray(value), allow_pickle=False)
    return {
        "shape": list(value.shape),
        "dtype": value.dtype.str,
        "bytes": file.stat().st_size,
        "sha256": _sha256(file),
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
