"""TOML that ends soon: Python's parser takes time that grows with the square of the number of dots in a key."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_DOTS = 200
_BETWEEN = re.compile(r"[,=\[\]{}#]+")


def loads(text: str) -> dict[str, Any]:
    """The tables of a TOML text; ValueError for what is none, and for keys of hundreds of parts."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > _DOTS and max(piece.count(".") for piece in _BETWEEN.split(line)) > _DOTS:
            raise ValueError(f"a key or text has more than {_DOTS} dots (at line {number}, column 1)")
    return tomllib.loads(text)
