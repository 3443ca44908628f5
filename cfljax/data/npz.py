"""From an `.npz` file to a data set."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import parser_errors
from cfljax.errors import DataError
from cfljax.files.npy import read_member
from cfljax.types import Source

_OPTIONAL = (
    *("user_train", "user_test", "population_train", "population_test"),
    *("classes", "table", "y_coarse_train", "y_coarse_test"),
)


def read(name: str, file: Path, classes: int | None = None) -> Source:
    """Read the data set in a file with `x_train, y_train, x_test, y_test`, and optionally
    `user_train, user_test, population_train, population_test` and coarse labels `y_coarse_train,
    y_coarse_test` (one number per sample), `classes` (one integer), `table` (an embedding)."""
    z = load_arrays(file, ("x_train", "y_train", "x_test", "y_test"), _OPTIONAL)
    if "user_train" not in z and not {
        "user_test",
        "population_train",
        "population_test",
    }.isdisjoint(z):
        raise DataError(f"{file}: user_test or populations without user_train")
    if classes is None and "classes" in z:
        held = z["classes"]
        if (
            held.size != 1
            or not np.issubdtype(held.dtype, np.integer)
            or not 1 <= held.item() <= arrays.MAX_CLASSES
        ):
            raise DataError(f"{file}: classes must be one integer from 1 to {arrays.MAX_CLASSES}")
        classes = held.item()
    if "table" in z:
        table = z["table"]
        if (
            table.ndim != 2
            or 0 in table.shape
            or not np.issubdtype(table.dtype, np.floating)
            or not np.isfinite(table).all()
        ):
            raise DataError(f"{file}: table must be finite numbers [vocabulary, width]")
        z["table"] = table.astype(np.float32, copy=False)
    return arrays.source(name, str(file), z, classes)


def list_arrays(file: Path) -> set[str]:
    """List the names of the arrays in an npz file."""
    with parser_errors(file, "as an npz file"), zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}


def load_arrays(
    file: Path, wanted: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Load these arrays of an npz file; a DataError names an array that is missing or broken."""
    with parser_errors(file, "as an npz file"), zipfile.ZipFile(file) as archive:
        inside = list_arrays(file)
        found = {}
        for name in (*wanted, *optional):
            if name in inside:
                with parser_errors(f"{file}: {name}"):
                    found[name] = read_member(
                        archive, name, "biufU" if name.startswith("user") else "biuf"
                    )
            elif name in wanted:
                raise DataError(f"{file}: has no array {name}; it must hold {', '.join(wanted)}")
        return found
