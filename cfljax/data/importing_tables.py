"""From CSV, NumPy and Parquet files to samples, and the table of readers by kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.data import npz
from cfljax.data.bounded import readable
from cfljax.data.importing_arrow import from_arrow
from cfljax.data.importing_columns import parts_of, shaped
from cfljax.data.importing_images import joined, read_images
from cfljax.data.importing_saved import read_datasets
from cfljax.data.importing_sounds import in_features, read_sounds
from cfljax.data.parts import Columns, Part, Wanted
from cfljax.errors import DataError, DataWarning


def read_csv(file: Path, _: Wanted) -> list[Columns]:
    """[The table] of a CSV or TSV file with a header. Only an empty cell counts as missing, as a class may be called NA."""
    import pandas as pd

    form: Any = {"sep": "\t" if ".tsv" in file.suffixes else ",", "skipinitialspace": True}
    with readable(file, "as CSV"):
        # Without a header, rows of more cells than it has names are an error: pandas shifts them by one.
        head = pd.read_csv(file, header=None, nrows=2, dtype=str, keep_default_na=False, **form)
        frame = pd.read_csv(file, keep_default_na=False, na_values=[""], low_memory=False, **form)  # a column's kind is of all rows
    names = [name for name in head.iloc[0] if name]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"{file}: two columns are called {twice[0]}; give them different names")
    frame.columns = frame.columns.map(str)
    return [Columns(str(file), list(frame.columns), len(frame), lambda name: frame[name].to_numpy(), {})]


def read_numpy(place: Path, _: Wanted) -> list[Part]:
    """[Training part, test part], or [training part], of a folder with x_train.npy, y_train.npy, … or x.npy and y.npy, and with
    user_train.npy or user.npy if samples have owners, y_coarse_train.npy or y_coarse.npy if they have coarse labels; or of an .npz
    file with arrays of these names."""
    held = npz.names(place) if place.is_file() else {file.stem for file in place.glob("*.npy")}

    def part(side: str) -> Part:
        wanted = [f"{key}{side}" for key in ("x", "y", "user", "y_coarse")]
        if place.is_file():
            found = npz.load_arrays(place, tuple(wanted[:2]), tuple(wanted[2:]))
            values = [found.get(name) for name in wanted]
        else:
            values = [_npy(place / f"{name}.npy", name not in wanted[:2]) for name in wanted]
        x, y, user, coarse = values
        return Part(x, y, user, coarse=coarse)  # type: ignore[arg-type]

    sides = [side for side in ("_train", "_test") if f"x{side}" in held] if "x_train" in held else [""]
    if f"x{sides[0]}" not in held:
        raise DataError(f"{place}: must hold arrays x_train and y_train, or x and y")
    return [part(side) for side in sides]


def in_shape(parts: list[Part], wanted: Wanted) -> list[Part]:
    """The parts, with samples of the shape `--shape` if it is given."""
    if not wanted.shape:
        return parts
    found = shaped("array x", [part.x for part in parts], wanted.shape)
    return [part._replace(x=x) for part, x in zip(parts, found, strict=True)]


def _npy(file: Path, optional: bool) -> np.ndarray | None:
    if not file.exists():
        if optional:
            return None
        raise DataError(f"{file}: there is no such file")
    with readable(file, then="; save plain numbers with numpy.save"):
        return np.load(file, mmap_mode="r", allow_pickle=False)


def read_parquet(where: Path, wanted: Wanted) -> list[Columns]:
    """The tables (training, test) of a Parquet file or a folder of Parquet files. Names that begin with train, test or val say to
    which part a file belongs; without such names all files are the training part."""
    files = [where] if where.is_file() else sorted(f for f in where.glob("*.parquet") if not f.name.startswith("."))
    parts = {name: [f for f in files if f.name.lower().startswith(name)] for name in ("train", "test", "val")}
    if where.is_file() or not any(parts.values()):
        return [_parquet(where, files, wanted)]
    others = [f for f in files if not any(f in part for part in parts.values())]
    if not parts["train"]:
        parts["train"], others = others, []
    if not parts["train"]:
        raise DataError(f"{where}: has no training file (all names begin with test or val)")
    test = "test" if parts["test"] else "val"
    left = others + (parts["val"] if test == "test" else [])
    if left:
        warnings.warn(f"{where}: left out: {', '.join(f.name for f in left)}", DataWarning, stacklevel=2)
    return [_parquet(where, parts[name], wanted) for name in ("train", test) if parts[name]]


def _parquet(where: Path, files: list[Path], wanted: Wanted) -> Columns:
    import pyarrow as arrow
    import pyarrow.parquet

    with readable(where, "as Parquet"):
        table = arrow.concat_tables([pyarrow.parquet.read_table(f) for f in files])
    return from_arrow(str(where if len(files) > 1 else files[0]), table, wanted, {})


KIND: dict[str, tuple[Callable[[Path, Wanted], list[Any]], Callable[[list[Any], Wanted], list[Part]]]] = {
    "images": (read_images, joined),
    "sounds": (read_sounds, in_features),
    "csv": (read_csv, parts_of),
    "parquet": (read_parquet, parts_of),
    "datasets": (read_datasets, parts_of),
    "numpy": (read_numpy, in_shape),
}
"""For each kind: the function that reads a place, and the function that makes the parts of what it returns. Both return a list of
one or two entries: training, then test."""
