"""Names of users and classes: two are one only if they are the same integer or the same text.

Names come as NumPy arrays: integers, text, floats that are meant as integers, or Python's integers
as objects where NumPy has no type for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from cfljax.errors import DataError

# 01 is another name than 1
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Text that is longer, or has a larger exponent, stays text
_MAX_DIGITS = 100


def is_decimal(text: str) -> bool:
    """Return whether a text is a decimal number."""
    return _DECIMAL.fullmatch(text) is not None


def parse_integer(text: str) -> int | None:
    """Return the integer that 3, 3.0 or 3.000e+00 stands for, exactly; None for other text."""
    if len(text) > _MAX_DIGITS or not is_decimal(text):
        return None
    number = Decimal(text)
    if abs(number.adjusted()) > _MAX_DIGITS:
        return None
    numerator, denominator = number.as_integer_ratio()
    return numerator if denominator == 1 else None


def pack_integers(names: Iterable[int]) -> np.ndarray:
    """Return int64[n], or objects if one has more bits. NumPy itself makes floats of -1 and
    2^63."""
    exact = np.array(list(names), object)
    fits = all(-(2**63) <= name < 2**63 for name in exact)
    return exact.astype(np.int64) if fits else exact


def as_integers(where: str, names: np.ndarray) -> np.ndarray | None:
    """Return names as exact integers; None if they are text, or one of them is a fraction."""
    if names.dtype.kind == "f":
        if not (np.isfinite(names) & (names == np.round(names))).all():
            return None
        bits = np.finfo(names.dtype).nmant + 1
        if names.size and np.abs(names).max() > 2.0**bits:
            raise DataError(
                f"{where}: has the name {np.abs(names).max():.0f} as {names.dtype}, in which whole "
                f"numbers of more than {bits} bits become equal; save names as integers or text"
            )
        return names.astype(np.int64)
    if names.dtype.kind in "uO":
        return pack_integers(names.ravel().tolist()).reshape(names.shape)
    return names if names.dtype.kind in "ib" else None


def as_texts(names: np.ndarray) -> np.ndarray:
    """Return names as text; 2 and 2.0 have the same."""
    if names.dtype.kind != "f":
        return names.astype(str)
    texts = [str(int(n)) if n.is_integer() else str(n) for n in names.ravel().tolist()]
    return np.array(texts, str).reshape(names.shape)


def join_names(where: str, parts: list[np.ndarray]) -> np.ndarray:
    """Return the names of several parts as one array: integers if all are, else text."""
    exact = [as_integers(where, part) for part in parts]
    whole = [part for part in exact if part is not None]
    return np.concatenate(whole if len(whole) == len(parts) else [as_texts(p) for p in parts])


def number_names(where: str, parts: list[np.ndarray]) -> tuple[list[str], list[np.ndarray]]:
    """Return the names that occur, and for each part the positions of its names in that list.
    Integers are in the order of their values: 2 comes before 10."""
    joined = join_names(where, parts)
    names, positions = np.unique(joined, return_inverse=True)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return [str(name) for name in names], np.split(positions.reshape(joined.shape), ends)
