"""From Arrow's tables, as Parquet files and saved Hugging Face data sets hold them, to columns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from cfljax.data.importing_images import Picture, decoded
from cfljax.data.parts import Columns, Wanted
from cfljax.errors import DataError
from cfljax.registry.options import Table, Value

if TYPE_CHECKING:
    import pyarrow as arrow


def from_arrow(where: str, table: arrow.Table, wanted: Wanted, features: Table) -> Columns:
    """The columns of a table; `features` is what Hugging Face says of them: which are labels, and the names of their classes."""
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
