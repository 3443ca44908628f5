"""Tables: CSV, Parquet, Arrow files of a Hugging Face data set saved to disk, and NumPy arrays in a folder."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cfljax.data import npz
from cfljax.data.bounded import reason
from cfljax.data.importing import Part, Wanted
from cfljax.data.importing_images import to_array
from cfljax.errors import DataError, suggest

_LABELS = ("label", "labels", "class", "target", "y", "fine_label")
_USERS = ("user", "user_id", "client", "client_id")
Parts = tuple[Part, Part | None]


def read_csv(file: Path, wanted: Wanted) -> Parts:
    """A CSV (or TSV) file with a header."""
    import pandas as pd

    try:
        frame = pd.read_csv(file, sep="\t" if ".tsv" in file.suffixes else ",", skipinitialspace=True)
    except (ValueError, OSError, EOFError) as e:
        raise DataError(f"{file}: cannot be read as CSV ({reason(e)})") from e
    return part_of(str(file), {str(c): frame[c].to_numpy() for c in frame.columns}, wanted, {}), None


def read_parquet(where: Path, wanted: Wanted) -> Parts:
    """A Parquet file, or a folder of them; those whose names begin with `test` are the test part."""
    arrow = _arrow(where)
    import pyarrow.parquet

    files = [where] if where.is_file() else sorted(where.glob("*.parquet"))
    test = [f for f in files if f.name.startswith("test")] if len(files) > 1 else []
    parts = []
    for chosen in ([f for f in files if f not in test], test):
        try:
            tables = [pyarrow.parquet.read_table(f) for f in chosen]
            table = arrow.concat_tables(tables) if tables else None
        except (arrow.ArrowException, OSError) as e:
            raise DataError(f"{where}: cannot be read as Parquet ({reason(e)})") from e
        parts.append(None if table is None else _from_arrow(str(where), table, wanted, {}))
    if parts[0] is None:
        raise DataError(f"{where}: has no training file (all names begin with test)")
    return parts[0], parts[1]


def read_datasets(folder: Path, wanted: Wanted) -> Parts:
    """What `datasets.Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote; read without that package."""
    if not (folder / "dataset_dict.json").is_file():
        return _saved(folder, wanted), None
    splits = _json(folder / "dataset_dict.json").get("splits")
    splits = splits if isinstance(splits, list) else []
    test = next((s for s in ("test", "validation", "valid") if s in splits), None)
    if "train" not in splits:
        raise DataError(f"{folder}: has no split train; it has {', '.join(map(str, splits)) or 'none'}")
    return _saved(folder / "train", wanted), None if test is None else _saved(folder / test, wanted)


def read_numpy(place: Path, wanted: Wanted) -> Parts:
    """A folder with x_train.npy, y_train.npy, … or x.npy and y.npy, and user_train.npy or user.npy where samples have owners; or an
    .npz file with arrays of these names."""
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
    if wanted.shape:
        train, test = (None if p is None else p._replace(x=_reshaped(str(place), p.x, wanted.shape)) for p in (train, test))
    assert train is not None
    return train, test


READERS: dict[str, Callable[[Path, Wanted], Parts]] = {
    "csv": read_csv,
    "parquet": read_parquet,
    "datasets": read_datasets,
    "numpy": read_numpy,
}


def part_of(where: str, columns: dict[str, np.ndarray], wanted: Wanted, names: dict[str, list[str]]) -> Part:
    """Columns into samples, labels and owners. `names`: the classes of label columns that know them."""
    label = _column(where, columns, wanted.label, [*names, *_LABELS], "--label")
    if label is None:
        raise DataError(f"{where}: which column is the label? say --label COLUMN; it has {', '.join(columns)}")
    if not len(columns[label]):
        raise DataError(f"{where}: has no rows; a sample is a row")
    user = _column(where, columns, wanted.user, list(_USERS), "--user")
    for flag, chosen in (("--drop", wanted.drop), ("--one-hot", wanted.one_hot), ("--x", wanted.x)):
        for column in chosen:
            _column(where, columns, column, [], flag)
    taken = {label, user, *wanted.drop}
    features = [c for c in wanted.x or columns if c not in taken]
    if not features:
        raise DataError(f"{where}: no column is left for the samples beside {label} and {user}")
    x = np.concatenate(_same(where, [_feature(where, c, columns[c], c in wanted.one_hot) for c in features]), axis=-1)
    if wanted.shape and x.dtype != np.uint8 or (wanted.shape and x.ndim == 2):
        x = _reshaped(where, x, wanted.shape)
    for what, name in (("label", label), ("user", user)):
        missing = [] if name is None else [v is None or v != v for v in columns[name].tolist()]
        if any(missing):
            raise DataError(f"{where}: the {what} is missing in row {missing.index(True) + 1} (column {name})")
    return Part(x, columns[label], None if user is None else columns[user], names.get(label))


def _column(where: str, columns: dict[str, Any], name: str | None, otherwise: list[str], flag: str) -> str | None:
    if name is None:
        return next((c for c in otherwise if c in columns), None)
    if name not in columns:
        raise DataError(f"{flag} {name}: {where} has no such column{suggest(name, columns)}")
    return name


def _feature(where: str, name: str, values: np.ndarray, one_hot: bool) -> np.ndarray:
    """A column as [n, …]."""
    if one_hot:
        kinds, found = np.unique(values.astype(str), return_inverse=True)
        return np.eye(len(kinds), dtype=np.float32)[found]
    if values.dtype.kind not in "biuf":
        shown = f"--drop {name}, --one-hot {name}, or --user {name} if it says whose the sample is"
        raise DataError(f"{where}: column {name} holds {str(values[0])[:30]!r}, which is no number: {shown}")
    if values.ndim == 1:
        bad = ~np.isfinite(values.astype(np.float64))
        if bad.any():
            row = int(np.argmax(bad)) + 1
            raise DataError(f"{where}: column {name} is empty or not finite in row {row}: fill it, or --drop {name}")
        return values[:, None].astype(np.float32)
    return values if values.dtype == np.uint8 else values.astype(np.float32)


def _same(where: str, features: list[np.ndarray]) -> list[np.ndarray]:
    """An image, or numbers: not both."""
    shapes = {f.shape[:-1] for f in features}
    if len(shapes) > 1:
        raise DataError(f"{where}: the columns for the samples have different shapes; choose with --x COLUMN or --drop COLUMN")
    return features


def _reshaped(where: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Flat samples in a shape; bytes where all values are whole numbers from 0 to 255."""
    flat = x.reshape(len(x), -1)
    if flat.shape[1] != int(np.prod(shape)):
        raise DataError(f"--shape {'x'.join(map(str, shape))}: {where} has {flat.shape[1]} numbers per sample")
    if flat.size and (flat >= 0).all() and (flat <= 255).all() and (flat == np.round(flat)).all():
        flat = flat.astype(np.uint8)
    return flat.reshape(len(x), *shape)


def _npy(file: Path, optional: bool) -> np.ndarray | None:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        if optional:
            return None
        raise DataError(f"{file}: there is no such file") from None
    except Exception as e:
        raise DataError(f"{file}: cannot be read ({reason(e)}); save plain numbers with numpy.save") from e


def _arrow(where: Path) -> Any:
    try:
        import pyarrow
    except ImportError as e:
        raise DataError(f'{where}: reading this needs pyarrow: pip install "cfljax[parquet]"') from e
    return pyarrow


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{file}: cannot be read as JSON ({reason(e)})") from e
    return found if isinstance(found, dict) else {}


def _saved(folder: Path, wanted: Wanted) -> Part:
    """One saved Dataset: Arrow streams, and what its columns mean."""
    arrow = _arrow(folder)
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise DataError(f"{folder}: is a selection of another data set; call flatten_indices() before save_to_disk")
    files = [entry.get("filename") for entry in state.get("_data_files") or []]
    if not files or not all(isinstance(f, str) and Path(f).name == f for f in files):
        raise DataError(f"{folder / 'state.json'}: names no data files beside it")
    try:
        tables = []
        for name in files:
            with arrow.memory_map(str(folder / name)) as source:
                tables.append(arrow.ipc.open_stream(source).read_all())
        table = arrow.concat_tables(tables)
    except (arrow.ArrowException, OSError) as e:
        raise DataError(f"{folder}: cannot be read as Arrow ({reason(e)})") from e
    features = _json(folder / "dataset_info.json").get("features") or {}
    return _from_arrow(str(folder), table, wanted, features)


def _from_arrow(where: str, table: Any, wanted: Wanted, features: dict[str, Any]) -> Part:
    kinds = {c: f for c, f in features.items() if isinstance(f, dict) and f.get("_type") == "ClassLabel"}
    names = {c: list(map(str, f["names"])) for c, f in kinds.items() if f.get("names")}
    for name in wanted.drop:
        _column(where, dict.fromkeys(table.column_names), name, [], "--drop")
    wanted_columns = {*wanted.x, wanted.label, wanted.user} if wanted.x else None
    columns = {}
    for name in table.column_names:
        if name not in wanted.drop and (wanted_columns is None or name in wanted_columns or name in (*names, *_LABELS, *_USERS)):
            columns[name] = _arrow_column(f"{where}: column {name}", table.column(name).combine_chunks(), wanted)
    return part_of(where, columns, dataclasses.replace(wanted, drop=()), names)


def _arrow_column(where: str, column: Any, wanted: Wanted) -> np.ndarray:
    """Numbers and texts [n], lists of numbers [n, …], images u8[n, height, width, channels]."""
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
        raise DataError(f"{where} holds lists of {kind}, which are no numbers: --drop it")
    return values.reshape(-1, *shape)


def _images(where: str, contents: list[Any], wanted: Wanted) -> np.ndarray:
    found: list[np.ndarray] = []
    for i, content in enumerate(contents):
        if not isinstance(content, bytes):
            raise DataError(f"{where} names files in place of their contents in row {i + 1}; embed them before save_to_disk")
        try:
            found.append(to_array(io.BytesIO(content), wanted, found[0].shape[-1] if found else None))
        except Exception as e:
            raise DataError(f"{where}: the image in row {i + 1} cannot be read ({reason(e)})") from e
        if found[-1].shape != found[0].shape:
            raise DataError(f"{where}: the image in row {i + 1} has another size than the first; say --shape 32x32 for all")
    return np.stack(found)
