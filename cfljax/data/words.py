"""From words to vectors: those of a file in GloVe's text format, or fixed random ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

import numpy as np

from cfljax.data.bounded import Unfolding, reason
from cfljax.errors import DataError

_TOKEN = re.compile(r"[\w']+|[.,!?;]")
_SCALE = 0.4
"""Standard deviation of the entries of a random vector: about that of GloVe's vectors of 300 numbers."""


def tokens(text: str, lowercase: bool) -> list[str]:
    """The words of a text and its marks `. , ! ? ;`, in order."""
    return _TOKEN.findall(text.lower() if lowercase else text)


def glove(file: Path, wanted: Iterable[str], width: int) -> dict[str, np.ndarray]:
    """f32[width] for each wanted word that the file has. Each line is a word and its numbers; the file may be gzipped."""
    wanted, found = set(wanted), {}
    try:
        with _lines(file) as f:
            longest = 64 * (width + 4)  # of a line, in characters: a file without line ends is not read into memory
            for number, line in enumerate(iter(lambda: f.readline(longest), ""), 1):
                if number > 1 and line.partition(" ")[0] not in wanted:
                    continue  # of millions of lines only the wanted ones are split, and the first, to check the width
                fields = line.rstrip("\n").rsplit(" ", width)  # from the right: some of GloVe's words hold spaces
                if len(fields) != width + 1 or not fields[0]:
                    raise DataError(f"{file}: line {number} is not a word and {width} numbers (data.width = {width})")
                if fields[0] in wanted:
                    found[fields[0]] = _vector(fields[1:], f"{file}: line {number}")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as e:
        raise DataError(f"{file}: cannot be read ({reason(e)})") from e
    return found


def _lines(file: Path) -> IO[str]:
    if file.suffix != ".gz":
        return file.open(encoding="utf-8")
    packed = Unfolding(cast(IO[bytes], gzip.open(file)), file)  # noqa: SIM115 (closed with what wraps it)
    return io.TextIOWrapper(io.BufferedReader(packed, 1 << 20), encoding="utf-8")


def _vector(fields: list[str], where: str) -> np.ndarray:
    try:
        values = np.array(fields, np.float32)
    except ValueError as e:
        raise DataError(f"{where}: {reason(e)}") from e
    if not np.isfinite(values).all():
        raise DataError(f"{where}: has a number that is NaN or infinite")
    return values


def hashed(word: str, width: int) -> np.ndarray:
    """f32[width]: a vector that depends on the word alone, the same on every machine."""
    bits = hashlib.shake_256(word.encode()).digest(2 * width)
    uniform = np.frombuffer(bits, "<u2").astype(np.float32) / np.float32(65535) * 2 - 1
    return uniform * np.float32(_SCALE * 3**0.5)
