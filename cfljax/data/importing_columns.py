"""From the columns of a training and a test table to samples, labels and users. Columns go by
name, alike in both."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np

from cfljax.data.importing_tables import MISSING_WORDS, Table, is_number
from cfljax.data.names import is_decimal, join_names
from cfljax.data.parts import Part, Wanted
from cfljax.errors import DataError, DataWarning, suggest

LABEL_NAMES = ("label", "labels", "class", "target", "y", "fine_label")
COARSE_NAMES = ("coarse_label", "y_coarse")
USER_NAMES = ("user", "user_id", "client", "client_id")
_INDEX = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")
"""Names that pandas gives to columns without a name and to row numbers."""


def make_parts(tables: list[Table], wanted: Wanted) -> list[Part]:
    """Return the parts (training, test). The roles of columns, their kinds, and whether numbers are
    bytes are decided for both."""
    train = tables[0]
    for table in tables:
        if not len(table.data):
            raise DataError(f"{table.where}: has no rows; each sample is a row")
    every = list(dict.fromkeys(name for table in tables for name in table.data.column_names))
    for flag, columns in (
        ("--drop", wanted.drop),
        ("--one-hot", wanted.one_hot),
        ("--x", wanted.x),
    ):
        for column in columns:
            _check_column(train.where, column, every, flag)
    label, user, coarse, features = _find_roles(train, wanted)
    for test in tables[1:]:
        _check_test(train, test, [label, *([coarse] if coarse else []), *features], user, wanted)
    try:
        columns_x = [_read_feature(tables, name, wanted) for name in features]
    except DataError as error:
        raise DataError(f"{error}{_doubt_label(train, label)}") from None
    if len({values.shape[:-1] for values in columns_x}) > 1:
        raise DataError(
            f"{train.where}: columns for the samples have different shapes; choose with --x "
            "COLUMN or --drop COLUMN"
        )
    x = np.concatenate(columns_x, axis=-1)
    if wanted.shape and (x.dtype != np.uint8 or x.ndim == 2):
        (x,) = reshape_samples(train.where, [x], wanted.shape)
    # A flat row of bytes holds numbers. As bytes they would be divided by 255, as pixels are.
    elif x.dtype == np.uint8 and x.ndim == 2:
        x = x.astype(np.float32)
    return [
        Part(
            rows,
            table.names("target" if wanted.continuous else "label", label),
            table.users if user is None else table.names("user", user),
            table.class_names.get(label),
            None if coarse is None else table.names("coarse label", coarse),
        )
        for table, rows in zip(tables, np.split(x, [len(train.data)]), strict=False)
    ]


def _doubt_label(train: Table, label: str) -> str:
    """Return words that ask whether a column with other values in most rows is the label: if not,
    the real one is among the features."""
    cells = train.data.column(label).to_pylist()
    if any(isinstance(cell, list | dict) for cell in cells):
        return ""
    kinds = len(set(cells))
    if kinds <= max(20, len(cells) // 2):
        return ""
    return (
        f"; and column {label} has {kinds} different values in {len(cells)} rows: is it the label?"
    )


def _find_roles(train: Table, wanted: Wanted) -> tuple[str, str | None, str | None, list[str]]:
    """Return the columns of the labels, users, coarse labels and samples."""
    left = [c for c in train.data.column_names if c not in wanted.drop]
    label = find_label(train, left, wanted)
    if label is None:
        names = ", ".join(train.data.column_names)
        raise DataError(
            f"{train.where}: which column is the label? give --label COLUMN; the columns are "
            f"{names}"
        )
    user = find_user(train, left, wanted)
    coarse = _choose_column(
        train, [c for c in left if c not in wanted.x], wanted.coarse, COARSE_NAMES, "--coarse"
    )
    roles = (label, user, coarse, *wanted.one_hot)
    features = list(wanted.x) or [c for c in left if c in roles or not _is_index(train, c)]
    features = [c for c in features if c not in (label, user, coarse, *wanted.drop)]
    if not features:
        raise DataError(
            f"{train.where}: no column is left for the samples except {label} and {user}"
        )
    return label, user, coarse, features


def find_label(table: Table, left: list[str], wanted: Wanted) -> str | None:
    """Return the column of the labels: `--label`'s, else the only one with a usual name, else the
    only one with classes."""
    found = _choose_column(
        table, [c for c in left if c not in wanted.x], wanted.label, LABEL_NAMES, "--label"
    )
    return found or _choose_column(table, left, None, tuple(table.class_names), "--label")


def find_user(table: Table, left: list[str], wanted: Wanted) -> str | None:
    """Return the column of the users; None where no column names them."""
    usual = () if table.users is not None else USER_NAMES
    return _choose_column(
        table, [c for c in left if c not in wanted.x], wanted.user, usual, "--user"
    )


def _choose_column(
    table: Table, left: list[str], name: str | None, usual: tuple[str, ...], flag: str
) -> str | None:
    """Return the column that a flag names, else the only one with a usual name among those that are
    left; None if there is none."""
    if name is not None:
        return _check_column(table.where, name, table.data.column_names, flag)
    found = [c for c in usual if c in left]
    if len(found) > 1:
        line = (
            f"{table.where}: columns {found[0]} and {found[1]} could both be meant; give {flag} "
            "COLUMN"
        )
        raise DataError(f"{line}, and --drop the others unless they are numbers of the samples")
    return found[0] if found else None


def _check_column(where: str, name: str, names: list[str], flag: str) -> str:
    if name not in names:
        raise DataError(f"{flag} {name}: {where} has no such column{suggest(name, names)}")
    return name


def _is_index(table: Table, name: str) -> bool:
    """Return whether the column holds the row numbers (or names) that pandas and R add to a
    table."""
    if not _INDEX.fullmatch(name):
        return False
    if not name.startswith("__"):
        cells = table.data.column(name).to_pylist()
        if len(set(cells)) < len(cells) or not all(str(cell).isdigit() for cell in cells):
            raise DataError(
                f"{table.where}: a column has no name; give it one in the header, or --drop "
                f'"{name}"'
            )
    warnings.warn(
        f'{table.where}: the column "{name}" holds row numbers and is left out',
        DataWarning,
        stacklevel=2,
    )
    return True


def _check_test(
    train: Table, test: Table, needed: list[str], user: str | None, wanted: Wanted
) -> None:
    """Raise a DataError unless the test table has the columns of the training table, in any
    order."""
    names = test.data.column_names
    for column in needed:
        if column not in names:
            raise DataError(
                f"{test.where}: has no column {column}, which {train.where} "
                f"has{suggest(column, names)}"
            )
    if user is not None and user not in names:
        raise DataError(
            f"{test.where}: has no column {user}, so that its samples have no user: add it, "
            f"or --drop {user}, or "
            "leave out the test table, so that a share of each user's samples is used for testing"
        )
    check_names(train, test, label=needed[0], user=user)
    more = [c for c in names if c not in (*needed, user, *wanted.drop) and not _INDEX.fullmatch(c)]
    if more and not wanted.x:
        raise DataError(
            f"{test.where}: has a column {more[0]}, which {train.where} does not have: "
            f"--drop {more[0]}"
        )


def check_names(train: Table, test: Table, **columns: str | None) -> None:
    """Raise a DataError if a column of names has integers in one table and text in the other.
    `columns`: what it names -> the column, if there is one."""
    for what, column in columns.items():
        if column is None:
            continue
        kinds = [_kind_of(table.names(what, column)) for table in (test, train)]
        if kinds[0] != kinds[1]:
            line = f"{test.where}: column {column} holds {kinds[0]}, in {train.where} {kinds[1]}"
            raise DataError(
                f"{line}: write both in the same form, so that one name does not become two"
            )


def _kind_of(names: np.ndarray) -> str:
    """Return whether a column of names holds "strings" or "numbers"."""
    text = names.dtype.kind == "U" and not all(map(is_decimal, np.unique(names)))
    return "strings" if text else "numbers"


def _read_feature(tables: list[Table], name: str, wanted: Wanted) -> np.ndarray:
    """Read a column of all tables as numbers [n, …] in one form; `--one-hot` makes a number of each
    value."""
    if name in wanted.one_hot:
        where = f"{tables[0].where}: column {name}"
        joined = join_names(where, [table.names("value", name) for table in tables])
        kinds, at = np.unique(joined.astype(str), return_inverse=True)
        return np.eye(len(kinds), dtype=np.float32)[at]
    found = [_read_numbers(table, name, wanted) for table in tables]
    forms = list(dict.fromkeys(f"{f.dtype}{list(f.shape[1:])}" for f in found))
    if len(forms) > 1:
        two = f"{tables[1].where}: column {name} is {forms[1]}, in {tables[0].where} {forms[0]}"
        raise DataError(f"{two} (--grey and --shape bring images to one form)")
    return np.concatenate(found)


def _read_numbers(table: Table, name: str, wanted: Wanted) -> np.ndarray:
    """Read a column of a table as numbers [n, …]; a DataError names the first cell that is none."""
    import pandas as pd

    values = table.values(name, wanted)
    if values.ndim > 1:
        return values if values.dtype == np.uint8 else values.astype(np.float32)
    plain = values.dtype.kind in "biuf"
    series = pd.Series(values) if plain else pd.Series(values).replace({"True": "1", "False": "0"})
    wide = pd.to_numeric(series, errors="coerce").to_numpy(np.float64)
    if not (good := np.isfinite(wide)).all():
        row = int(np.argmin(good))
        if plain or values[row] in MISSING_WORDS or is_number(values[row]):
            raise DataError(
                f"{table.where}: column {name} is empty or not finite in row {row + 1}: fill "
                f"it, or --drop {name}"
            )
        flags = (
            f"--drop {name}, --one-hot {name}, --text {name}, or --user {name} if it says which "
            "user a sample belongs to"
        )
        cell = repr(str(values[row])[:30])
        raise DataError(
            f"{table.where}: column {name} holds {cell} in row {row + 1}, which is not a "
            f"number: {flags}"
        )
    narrow = wide.astype(np.float32)
    if (wide == np.round(wide)).all() and (narrow != wide).any():
        line = (
            f"{table.where}: column {name} has integers above 2^24, some of which lose precision "
            "in float32"
        )
        warnings.warn(f"{line}; subtract an offset, or --drop {name}", DataWarning, stacklevel=2)
    return narrow[:, None]


def reshape_samples(
    where: str, parts: list[np.ndarray], shape: tuple[int, ...]
) -> list[np.ndarray]:
    """Return flat samples in a shape. They become bytes if all values of all parts are integers
    from 0 to 255 and some are above 127, as in images. Bytes are divided by 255 before training;
    flags of 0 and 1, and counts, must not be."""
    flat = [x.reshape(len(x), -1) for x in parts]
    for x in flat:
        if x.shape[1] != math.prod(shape):
            raise DataError(
                f"--shape {'x'.join(map(str, shape))}: {where} has {x.shape[1]} numbers per sample"
            )
    pixels = max(x.max(initial=0) for x in flat) > 127 and all(
        ((x >= 0) & (x <= 255)).all() and (x == np.round(x)).all() for x in flat
    )
    if any(x.dtype != np.uint8 for x in flat):
        flat = [x.astype(np.uint8 if pixels else np.float32) for x in flat]
    return [x.reshape(len(x), *shape) for x in flat]
