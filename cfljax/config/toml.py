"""From a TOML file or a dict to plain tables with only what a spec can hold."""

from __future__ import annotations

import datetime
import math
import os
import re
import tomllib
from pathlib import Path

from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, Value

# Deeper nesting is refused: recursive functions read the tables
_MAX_DEPTH = 12
# JSON and numpy hold integers of 64 bits
_MAX_INTEGER = 2**63


def load(path: Path) -> Table:
    """Parse a TOML file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        near = suggest(path.name, _toml_files(path.parent)) if path.parent.is_dir() else ""
        raise SpecError("there is no such file" + near) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        # Some editors begin a file with a byte order mark
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecError(f"line {line}: is not valid UTF-8") from None
    except RecursionError:
        raise SpecError("tables and lists are nested too deeply") from None
    # A TOMLDecodeError, or Python's own error for a number of thousands of digits
    except ValueError as error:
        raise SpecError(_move_line(str(error))) from None


def _toml_files(folder: Path) -> list[str]:
    try:
        return [p.name for p in folder.glob("*.toml")][:1000]
    except OSError:
        return []


def _move_line(message: str) -> str:
    """Put the number of the line before a parser's message."""
    match = re.search(r"\s*\(at line (\d+), column \d+\)", message)
    if match:
        quote = (
            " (a string without its closing quote?)" if "Illegal character '\\n'" in message else ""
        )
        return f"line {match[1]}: {message[: match.start()]}{quote}"
    return f"last line: {message.removesuffix(' (at end of document)')}"


def sanitise(value: Value, where: str = "", depth: int = 0) -> Value:
    """Convert the value of the key `where` to plain tables, lists, strings, numbers and booleans; a
    SpecError if it is more."""
    if depth > _MAX_DEPTH:
        raise SpecError(f"{where[:60]}: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or not key or not key.isprintable():
                raise SpecError(
                    f"{where + ': ' if where else ''}{key!r} is not a key; a key is a "
                    "printable string"
                )
        return {
            key: sanitise(each, f"{where}.{key}" if where else key, depth + 1)
            for key, each in value.items()
        }
    # A numpy array of numbers, such as a result's labels
    if getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [sanitise(v, where, depth + 1) for v in value]
    # A numpy number
    if hasattr(value, "item") and not getattr(value, "shape", (1,)):
        value = value.item()
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and not -_MAX_INTEGER <= value < _MAX_INTEGER
    ):
        raise SpecError(f"{where[:60]}: an integer can have at most 64 bits")
    if isinstance(value, (datetime.date, datetime.time)):
        raise SpecError(f"{where} = {value}: is a date or time; write a string in quotes")
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise SpecError(f"{where} = {value}: must be a finite number")
    # Python keeps the bytes of a flag that are not UTF-8 as lone surrogates
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        raise SpecError(f"{where} = {value!r}: is not valid UTF-8")
    if not isinstance(value, (bool, int, float, str)):
        raise SpecError(f"{where}: a spec cannot hold a value of type {type(value).__name__}")
    return value
