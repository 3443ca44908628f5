"""From CSV, NumPy, Parquet and Arrow files to samples, and the table of readers by kind. The Arrow files are those of a Hugging
Face data set that was saved to disk."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfljax.data import npz
from cfljax.data.bounded import read_json, readable
from cfljax.data.importing_columns import parts_of, shaped
from cfljax.data.importing_images import Picture, decoded, joined, read_images
from cfljax.data.parts import Columns, Part, Wanted
from cfljax.errors import DataError, DataWarning
from cfljax.registry.options import Table, Value

if TYPE_CHECKING:
    import pyarrow as arrow


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
    return _from_arrow(str(where if len(files) > 1 else files[0]), table, wanted, {})


def read_datasets(folder: Path, wanted: Wanted) -> list[Columns]:
    """The tables (training, test) that `save_to_disk` of Hugging Face's datasets wrote, read without that package."""
    if not (folder / "dataset_dict.json").is_file():
        return [_saved(folder, wanted)]
    splits = _json(folder / "dataset_dict.json").get("splits")
    splits = splits if isinstance(splits, list) else []
    test = next((s for s in ("test", "validation", "valid") if s in splits), None)
    if "train" not in splits:
        raise DataError(f"{folder}: has no split train; it has {', '.join(map(str, splits)) or 'none'}")
    return [_saved(folder / name, wanted) for name in ("train", test) if name is not None]


def _json(file: Path) -> Table:
    content = read_json(file)
    return content if isinstance(content, dict) else {}


def _saved(folder: Path, wanted: Wanted) -> Columns:
    """The table of one saved Dataset: Arrow streams, and a JSON file about its columns."""
    import pyarrow as arrow

    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise DataError(f"{folder}: is a selection of another data set; call flatten_indices() before save_to_disk")
    files = [entry.get("filename") for entry in state.get("_data_files") or []]
    if not files or not all(isinstance(f, str) and Path(f).name == f for f in files):
        raise DataError(f"{folder / 'state.json'}: names no data files beside it")
    with readable(folder, "as Arrow"):
        table = arrow.concat_tables([arrow.ipc.open_stream(arrow.memory_map(str(folder / name))).read_all() for name in files])
    features = _json(folder / "dataset_info.json").get("features") or {}
    return _from_arrow(str(folder), table, wanted, features)


def _from_arrow(where: str, table: arrow.Table, wanted: Wanted, features: Table) -> Columns:
    kinds = {c: f for c, f in features.items() if isinstance(f, dict) and f.get("_type") == "ClassLabel"}
    names = {c: list(map(str, f["names"])) for c, f in kinds.items() if f.get("names")}

    def column(name: str) -> np.ndarray:
        return _arrow_column(f"{where}: column {name}", table.column(name).combine_chunks(), wanted)

    return Columns(where, list(table.column_names), len(table), column, names)


def _arrow_column(where: str, column: arrow.Array, wanted: Wanted) -> np.ndarray:
    """The values of a column: numbers or strings [n], lists of numbers [n, …], images u8[n, height, width, channels]."""
    import pyarrow as arrow

    kind = column.type
    if isinstance(kind, arrow.BaseExtensionType):  # Array2D and its like: lists inside
        column, kind = column.storage, column.type.storage_type
    if column.null_count:
        raise DataError(f"{where} is empty in {column.null_count} rows")
    if arrow.types.is_struct(kind) and "bytes" in [f.name for f in kind]:
        return _images(where, [item["bytes"] for item in column.to_pylist()], wanted)
    if arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        return _images(where, column.to_pylist(), wanted)
    shape = []
    while arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind):
        inner, n = column.flatten(), len(column)
        width = len(inner) // max(n, 1)
        if arrow.types.is_fixed_size_list(kind) is False and not np.all(np.diff(column.offsets.to_numpy()) == width):
            raise DataError(f"{where} has lists of different lengths")
        shape.append(width)
        column, kind = inner, inner.type
    values = column.to_numpy(zero_copy_only=False)
    if not shape:
        return values
    if values.dtype.kind not in "biuf":
        raise DataError(f"{where} holds lists of {kind}, which are not numbers: --drop it")
    return values.reshape(-1, *shape)


def _images(where: str, contents: list[Value], wanted: Wanted) -> np.ndarray:
    for i, content in enumerate(contents):
        if not isinstance(content, bytes):
            raise DataError(
                f"{where} row {i + 1} holds the name of an image file, not the image; embed the files before save_to_disk"
            )
    pictures: list[Picture] = [(f"{where}: the image in row {i + 1}", io.BytesIO(content)) for i, content in enumerate(contents)]
    return decoded(where, pictures, wanted)


KIND: dict[str, tuple[Callable[[Path, Wanted], list[Any]], Callable[[list[Any], Wanted], list[Part]]]] = {
    "images": (read_images, joined),
    "csv": (read_csv, parts_of),
    "parquet": (read_parquet, parts_of),
    "datasets": (read_datasets, parts_of),
    "numpy": (read_numpy, in_shape),
}
"""For each kind: the function that reads a place, and the function that makes the parts of what it returns. Both return a list of
one or two entries: training, then test."""
