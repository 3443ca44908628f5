"""From the columns of a training and a test table to samples, labels and owners. Columns go by name, alike in both."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np

from cfljax.data.parts import Columns, Part, Wanted
from cfljax.errors import DataError, DataWarning, suggest

LABELS = ("label", "labels", "class", "target", "y", "fine_label")
COARSE = ("coarse_label", "y_coarse")
USERS = ("user", "user_id", "client", "client_id")
_GAPS = {"NA", "N/A", "nan", "NaN", "null", "NULL", "None"}
"""Words that mean a missing value in a column of numbers; in a column of names they are names."""
_INDEX = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")
"""Names that pandas gives to columns without a name and to row numbers."""


def parts_of(tables: list[Columns], wanted: Wanted) -> list[Part]:
    """The parts (training, test) in these tables. The roles of columns, their kinds, and whether numbers are bytes are decided once
    for both."""
    for table in tables:
        if not table.rows:
            raise DataError(f"{table.where}: has no rows; each sample is a row")
    train = tables[0]
    known = list(dict.fromkeys(name for table in tables for name in table.names))
    for flag, columns in (("--drop", wanted.drop), ("--one-hot", wanted.one_hot), ("--x", wanted.x)):
        for column in columns:
            _known(train.where, column, known, flag)
    label, user, coarse, features = _roles(train, wanted)
    for test in tables[1:]:
        _check_test(train, test, label, user, features, wanted, coarse)
    columns_x = [_feature(tables, c, c in wanted.one_hot) for c in features]
    if len({values.shape[:-1] for values in columns_x}) > 1:
        raise DataError(
            f"{train.where}: the columns for the samples have different shapes; choose with --x COLUMN or --drop COLUMN"
        )
    x = np.concatenate(columns_x, axis=-1)
    if wanted.shape and (x.dtype != np.uint8 or x.ndim == 2):
        (x,) = shaped(train.where, [x], wanted.shape)
    parts = []
    for table, rows in zip(tables, np.split(x, [train.rows]), strict=False):
        owners = owners_of(table, user)
        above = None if coarse is None else names_of(table, "coarse label", coarse)
        parts.append(Part(rows, names_of(table, "label", label), owners, table.class_names.get(label), above))
    return parts


def _roles(train: Columns, wanted: Wanted) -> tuple[str, str | None, str | None, list[str]]:
    """The columns of labels, of owners, of coarse labels and of samples."""
    left = [c for c in train.names if c not in wanted.drop]
    label = column_of(train, left, wanted.label, [*train.class_names, *LABELS], "--label")
    if label is None:
        raise DataError(f"{train.where}: which column is the label? give --label COLUMN; the columns are {', '.join(train.names)}")
    user = user_column(train, left, wanted)
    coarse = column_of(train, [c for c in left if c not in wanted.x], wanted.coarse, list(COARSE), "--coarse")
    said = {label, user, coarse, *wanted.one_hot}
    features = wanted.x or [c for c in left if c in said or not _is_index(train, c)]
    features = [c for c in features if c not in (label, user, coarse, *wanted.drop)]
    if not features:
        raise DataError(f"{train.where}: no column is left for the samples beside {label} and {user}")
    return label, user, coarse, features


def column_of(table: Columns, left: list[str], name: str | None, otherwise: list[str], flag: str) -> str | None:
    """The column that the flag names, else the first of `otherwise` that is among those left."""
    if name is None:
        return next((c for c in otherwise if c in left), None)
    return _known(table.where, name, table.names, flag)


def user_column(table: Columns, left: list[str], wanted: Wanted) -> str | None:
    """The column of the owners; None where no column names them."""
    usual = [] if table.owners is not None else list(USERS)
    return column_of(table, left, wanted.user, usual, "--user")


def owners_of(table: Columns, column: str | None) -> np.ndarray | None:
    """The owners of the rows: those in the column, else those that the place of the rows says."""
    return table.owners if column is None else names_of(table, "user", column)


def _known(where: str, name: str, names: list[str], flag: str) -> str:
    if name not in names:
        raise DataError(f"{flag} {name}: {where} has no such column{suggest(name, names)}")
    return name


def _is_index(table: Columns, name: str) -> bool:
    """Whether the column holds the row numbers (or names) that pandas and R add to a table."""
    if not _INDEX.fullmatch(name):
        return False
    if not name.startswith("__"):
        values = table.column(name)
        if values.dtype.kind not in "iu" or len(np.unique(values)) < len(values):
            raise DataError(f'{table.where}: a column has no name; give it one in the header, or --drop "{name}"')
    warnings.warn(f'{table.where}: the column "{name}" holds row numbers and is left out', DataWarning, stacklevel=2)
    return True


def _check_test(
    train: Columns, test: Columns, label: str, user: str | None, x: list[str], wanted: Wanted, coarse: str | None
) -> None:
    """A DataError unless the test table has the columns of the training table, in any order."""
    for column in (label, *([] if coarse is None else [coarse]), *x):
        if column not in test.names:
            raise DataError(f"{test.where}: has no column {column}, which {train.where} has{suggest(column, test.names)}")
    if user is not None and user not in test.names:
        raise DataError(
            f"{test.where}: has no column {user}, so that its samples have no owner: add it, or --drop {user}, or "
            "leave out the test table, so that a share of each owner's samples is used for testing"
        )
    for column in [c for c in (label, user) if c is not None] + [c for c in wanted.one_hot if c in x]:
        kinds = [_kind(table.column(column)) for table in (test, train)]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"{test.where}: column {column} holds {kinds[0]}, in {train.where} {kinds[1]}: write both in the same "
                "form, so that one name does not become two"
            )
    more = [c for c in test.names if c not in (label, user, coarse, *x, *wanted.drop) and not _INDEX.fullmatch(c)]
    if more and not wanted.x:
        raise DataError(f"{test.where}: has a column {more[0]}, which {train.where} does not have: --drop {more[0]}")


def _kind(values: np.ndarray) -> str:
    """The form of the names in a column. As numbers 1 and 1.0 are one name; as strings 1 and 01 are two."""
    return "True and False" if values.dtype.kind == "b" else "numbers" if values.dtype.kind in "iuf" else "strings"


def _feature(tables: list[Columns], name: str, one_hot: bool) -> np.ndarray:
    """A column of all tables, one table after the other, as [n, …]."""
    if one_hot:
        kinds, at = np.unique(np.concatenate([names_of(t, "value", name) for t in tables]).astype(str), return_inverse=True)
        return np.eye(len(kinds), dtype=np.float32)[at]
    found = [_numbers(table, name) for table in tables]
    forms = list(dict.fromkeys(f"{f.dtype}{list(f.shape[1:])}" for f in found))
    if len(forms) > 1:
        raise DataError(f"{tables[1].where}: column {name} is {forms[1]}, in {tables[0].where} {forms[0]} (--grey and --shape "
                        "bring images to one form)")  # fmt: skip
    return np.concatenate(found)


def _numbers(table: Columns, name: str) -> np.ndarray:
    values = table.column(name)
    if values.ndim > 1:
        return values if values.dtype == np.uint8 else values.astype(np.float32)
    plain = values.dtype.kind in "biuf"
    good = np.isfinite(values.astype(np.float64)) if plain else np.array([_is_number(v) for v in values.tolist()])
    if plain and good.all():
        return values[:, None].astype(np.float32)
    row = int(np.argmin(good))
    cell = values.tolist()[row]
    if plain or _is_gap(cell) or cell in _GAPS:
        raise DataError(f"{table.where}: column {name} is empty or not finite in row {row + 1}: fill it, or --drop {name}")
    flags = f"--drop {name}, --one-hot {name}, or --user {name} if it names the owner of the sample"
    raise DataError(f"{table.where}: column {name} holds {str(cell)[:30]!r} in row {row + 1}, which is not a number: {flags}")


def _is_gap(cell: object) -> bool:
    return cell is None or bool(cell != cell)


def _is_number(cell: object) -> bool:
    try:
        return math.isfinite(float(cell))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def names_of(table: Columns, what: str, name: str) -> np.ndarray:
    """A column of names; a DataError if one is missing. NA is a name, unless all other cells are numbers."""
    values = table.column(name)
    cells = values.tolist()
    missing = [_is_gap(cell) for cell in cells]
    if not any(missing) and values.dtype.kind in "OUT":
        words = [isinstance(cell, str) and cell in _GAPS for cell in cells]
        if any(words) and all(word or _is_number(cell) for word, cell in zip(words, cells, strict=True)):
            missing = words
    if any(missing):
        raise DataError(f"{table.where}: the {what} is missing in row {missing.index(True) + 1} (column {name})")
    return values


def shaped(where: str, parts: list[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
    """Flat samples brought into a shape. They become bytes if all values of all parts are integers from 0 to 255 and some are above
    127, as in images. Bytes are divided by 255 before training; flags of 0 and 1, and counts, must not be."""
    flat = [x.reshape(len(x), -1) for x in parts]
    for x in flat:
        if x.shape[1] != math.prod(shape):
            raise DataError(f"--shape {'x'.join(map(str, shape))}: {where} has {x.shape[1]} numbers per sample")
    pixels = max(x.max(initial=0) for x in flat) > 127 and all(
        ((x >= 0) & (x <= 255)).all() and (x == np.round(x)).all() for x in flat
    )
    if any(x.dtype != np.uint8 for x in flat):
        flat = [x.astype(np.uint8 if pixels else np.float32) for x in flat]
    return [x.reshape(len(x), *shape) for x in flat]
