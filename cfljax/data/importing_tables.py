"""From CSV files and NumPy arrays to samples; and the table of readers by kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.data import npz
from cfljax.data.bounded import reason
from cfljax.data.importing_arrow import read_datasets, read_parquet
from cfljax.data.importing_columns import parts_of, shaped
from cfljax.data.importing_images import joined, read_images
from cfljax.data.parts import Columns, Part, Wanted
from cfljax.errors import DataError


def read_csv(file: Path, _: Wanted) -> tuple[Columns, None]:
    """(The table, None) of a CSV or TSV file with a header. Only an empty cell counts as missing, as a class may be called NA."""
    import pandas as pd

    form: Any = {"sep": "\t" if ".tsv" in file.suffixes else ",", "skipinitialspace": True}
    try:
        # Without a header, rows of more cells than it has names are an error: pandas shifts them by one.
        head = pd.read_csv(file, header=None, nrows=2, dtype=str, keep_default_na=False, **form)
        frame = pd.read_csv(file, keep_default_na=False, na_values=[""], low_memory=False, **form)  # a column's kind is of all rows
    except (ValueError, OSError, EOFError) as e:
        raise DataError(f"{file}: cannot be read as CSV ({reason(e)})") from e
    names = [name for name in head.iloc[0] if name]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"{file}: two columns are called {twice[0]}; give them different names")
    frame.columns = frame.columns.map(str)
    return Columns(str(file), list(frame.columns), len(frame), lambda name: frame[name].to_numpy(), {}), None


def read_numpy(place: Path, _: Wanted) -> tuple[Part, Part | None]:
    """(Training part, test part) of a folder with x_train.npy, y_train.npy, … or x.npy and y.npy, and with user_train.npy or
    user.npy if samples have owners; or of an .npz file with arrays of these names."""
    held = npz.names(place) if place.is_file() else {file.stem for file in place.glob("*.npy")}

    def part(side: str) -> Part | None:
        if f"x{side}" not in held:
            return None
        wanted = [f"{key}{side}" for key in ("x", "y", "user")]
        if place.is_file():
            found = npz.load_arrays(place, tuple(wanted[:2]), tuple(wanted[2:]))
            return Part(*map(found.get, wanted))  # type: ignore[arg-type]
        return Part(*(_npy(place / f"{name}.npy", name.startswith("user")) for name in wanted))  # type: ignore[arg-type]

    train, test = (part("_train"), part("_test")) if "x_train" in held else (part(""), None)
    if train is None:
        raise DataError(f"{place}: must hold arrays x_train and y_train, or x and y")
    return train, test


def in_shape(train: Part, test: Part | None, wanted: Wanted) -> tuple[Part, Part | None]:
    """Both parts, with samples of the shape `--shape` if it is given."""
    parts = [train] if test is None else [train, test]
    if wanted.shape:
        found = shaped("array x", [p.x for p in parts], wanted.shape)
        parts = [p._replace(x=x) for p, x in zip(parts, found, strict=True)]
    return parts[0], None if test is None else parts[1]


def _npy(file: Path, optional: bool) -> np.ndarray | None:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        if optional:
            return None
        raise DataError(f"{file}: there is no such file") from None
    except Exception as e:
        raise DataError(f"{file}: cannot be read ({reason(e)}); save plain numbers with numpy.save") from e


KIND: dict[str, tuple[Callable[..., Any], Callable[..., tuple[Part, Part | None]]]] = {
    "images": (read_images, joined),
    "csv": (read_csv, parts_of),
    "parquet": (read_parquet, parts_of),
    "datasets": (read_datasets, parts_of),
    "numpy": (read_numpy, in_shape),
}
"""For each kind: the function that reads a place, and the function that makes (training part, test part) of what it returns."""
