"""Options: frozen dataclasses whose fields say what they accept. One declaration drives checking,
`--help`, the method table and the split between static options and traced numbers."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar

from cfljax.errors import SpecError, suggest

# Whatever TOML or JSON can say: a word, a number, true or false, a date, a list, a table
Value = Any
# A table of a spec or of a record, as it was read
Table = dict[str, Value]
# The type of an option, as its annotation says it: a class, a union of classes, or tuple[…] for a
# list
Hint = Any
# What an option accepts: `help`, `low`, `high`, `choices` and the other arguments of `option`
Meta = Mapping[str, Value]


class Options(Protocol):
    """An instance of an Options class: a frozen dataclass whose fields are declared by `option`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __hash__(self) -> int:
        """Options are frozen and can be hashed."""


def is_options(value: object) -> TypeGuard[Options]:
    """Return whether the value is an Options instance."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


T = TypeVar("T", bound=Options)


def option(
    default: Value = dataclasses.MISSING,
    help: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
    traced: bool = False,
    file: bool = False,
    lists: tuple[str, ...] = (),
    beside: bool = False,
    written: Hint = None,
    search: tuple[Value, ...] | None = None,
    was: str = "",
) -> Any:
    """Declare a field of a class of options.

    Args:
        default: Immutable; left out: a spec must give the option.
        help: The line of `--help` and of the page of spec keys.
        low: The value is at least this.
        high: The value is at most this.
        above: The value is more than this.
        choices: The words that the value may be.
        traced: A number that a sweep may vary without compiling again; it reaches the method
            through `hyper`.
        file: The name of a file, whose contents are part of a run's id instead of the name.
        lists: Keys of an option's table whose value is a list.
        beside: A table whose keys are written beside the other options.
        written: The type that a spec gives, if the class makes an object of another type of it.
        search: What is worth trying: `(low, high, "log")` or `(low, high, "linear")` for a range,
            else the values. `cfljax tune` tries these where a spec has no ranges.
        was: The option's name in an earlier version, which ids of runs keep. A spec with it is
            told the name of today, and a record with it is read.

    Example:
        ```python
        clusters: int = option(4, "number of models", low=1)
        mu: float = option(1.0, "strength of the pull", low=0.0, traced=True, search=(0.01, 0.1, 1))
        ```
    """
    bounds = {"low": low, "high": high, "above": above, "choices": choices}
    meta = {"help": help, "traced": traced, "file": file, "lists": lists, "beside": beside} | bounds
    meta["written"] = written
    meta["search"] = search
    meta["was"] = was
    if search is not None:
        _check_search(search, low, high, above)
    if isinstance(default, (list, dict)):
        raise TypeError("an option's default is immutable: use a tuple")
    return dataclasses.field(default=default, metadata=meta)


def is_range(search: tuple[Value, ...]) -> bool:
    """Return whether a declared search is a range, and not a list of values."""
    return len(search) == 3 and search[2] in ("log", "linear")


def _check_search(
    search: tuple[Value, ...], low: float | None, high: float | None, above: float | None
) -> None:
    """Reject a declared search that is no range and no list of values within the bounds."""
    values = search[:2] if is_range(search) else search
    if len(values) < 2 or len(set(values)) < len(values):
        raise TypeError(f"search = {search}: give a range, or two or more values")
    if is_range(search) and not (
        search[0] < search[1] and (search[2] == "linear" or search[0] > 0)
    ):
        raise TypeError(f"search = {search}: must be low < high, and above 0 for a log range")
    for value in values:
        if isinstance(value, str):
            continue
        beyond = (low is not None and value < low) or (high is not None and value > high)
        if beyond or (above is not None and value <= above):
            raise TypeError(f"search = {search}: {value} is beyond the option's bounds")


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The Options class of entries that take no options."""


@dataclasses.dataclass(frozen=True)
class NamedTable:
    """A table with a name that decides which options it has; the options of other names are
    None."""

    # Name of an option → its default, and the names that have it
    OWNERS: ClassVar[dict[str, tuple[Value, tuple[str, ...]]]] = {}
    name: str

    def __post_init__(self) -> None:
        for name, (default, owners) in self.OWNERS.items():
            if getattr(self, name) is None and self.name in owners:
                object.__setattr__(self, name, default)

    def check(self, where: str) -> None:
        """Reject an option that belongs to another name."""
        for key, (_, owners) in self.OWNERS.items():
            if (value := getattr(self, key)) is not None and self.name not in owners:
                names = " or ".join(f'"{owner}"' for owner in owners)
                raise SpecError(f"{where}.{key} = {show(value)}: belongs to name = {names}")


@functools.cache
def read_hints(cls: type) -> dict[str, Hint]:
    """Return the types that a spec gives the options of a class."""
    hints = typing.get_type_hints(cls)
    written = {field.name: field.metadata.get("written") for field in dataclasses.fields(cls)}
    return {name: written[name] or hints[name] for name in written}


def check(cls: type[T], table: Table, where: str) -> T:
    """Make `cls(**table)`; a SpecError names the key (in the table `where`), the bad value and the
    nearest valid one."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in table:
        if key not in fields:
            raise SpecError(f"{where}.{key}: there is no such option" + suggest(key, fields))
    hints = read_hints(cls)
    values = {}
    for name, field in fields.items():
        if name in table:
            values[name] = check_value(table[name], hints[name], field.metadata, f"{where}.{name}")
        elif field.default is dataclasses.MISSING:
            raise SpecError(
                f"{where}.{name}: missing"
                + (f" ({field.metadata['help']})" if field.metadata.get("help") else "")
            )
    made = cls(**values)
    # A class may have a method `check`, which rejects options that exclude each other
    if hasattr(made, "check"):
        made.check(where)
    return made


def check_value(value: Value, hint: Hint, meta: Meta, where: str) -> Value:
    """Convert the value to its type (a list to a tuple, an int to a float); raise a SpecError if it
    does not fit."""
    choices = meta.get("choices")
    allowed = list_alternatives(hint)
    if choices and isinstance(value, str) and str in allowed:
        if value not in choices:
            raise SpecError(f'{where} = "{value}": unknown' + suggest(value, choices))
        return value
    for kind in allowed:
        fits, converted = _convert(value, kind)
        if fits:
            _check_range(converted, meta, where)
            return converted
    wanted = " or ".join(_name_type(k) for k in allowed if not (k is str and choices))
    words = " or ".join(f'"{c}"' for c in choices) if choices and str in allowed else ""
    raise SpecError(
        f"{where} = {show(value)}: must be {' or '.join(w for w in (wanted, words) if w)}"
    )


def list_alternatives(hint: Hint) -> tuple[Hint, ...]:
    """Return the types of a union; of another type, that type alone."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _convert(value: Value, kind: Hint) -> tuple[bool, Value]:
    """Return whether the value fits the type, and the converted value."""
    if kind is Any:
        return True, value
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        if not isinstance(value, (list, tuple)):
            return False, None
        pairs = [_convert(v, inner) for v in value]
        return all(ok for ok, _ in pairs), tuple(v for _, v in pairs)
    if kind is type(None):
        return value is None, None
    if kind is bool:
        return isinstance(value, bool), value
    # Python's booleans are integers, but `lr = true` is a mistake
    if isinstance(value, bool):
        return False, None
    if kind is float:
        fits = isinstance(value, (int, float))
        return fits, float(value) if fits else None
    if typing.get_origin(kind) is dict or kind is dict:
        return isinstance(value, dict), value
    return isinstance(value, kind), value


_BOUNDS = {
    "low": (operator.ge, "at least"),
    "high": (operator.le, "at most"),
    "above": (operator.gt, "greater than"),
}


def _check_range(value: Value, meta: Meta, where: str) -> None:
    """Reject a number that is not finite or beyond the option's bounds."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        if not math.isfinite(number):
            raise SpecError(f"{where} = {show(value)}: must be a finite number")
        for key, (holds, words) in _BOUNDS.items():
            if (bound := meta.get(key)) is not None and not holds(number, bound):
                raise SpecError(f"{where} = {show(value)}: must be {words} {bound:g}")


def list_files(options: Options) -> dict[str, Path]:
    """Return the files that options name, by the options' names."""
    pairs = (
        (f.name, getattr(options, f.name))
        for f in dataclasses.fields(options)
        if f.metadata.get("file")
    )
    return {name: Path(value).expanduser() for name, value in pairs if value}


_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), 127)} | {
    ord(char): f"\\{word}" for char, word in zip('"\\\n\t\r', '"\\ntr', strict=True)
}
"""What stands for a character in a string of TOML."""


def show(value: Value) -> str:
    """Format the value as TOML would write it."""
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {show(v)}" for k, v in value.items()) + " }"
    return "none" if value is None else str(value)


def _name_type(kind: Hint) -> str:
    """Name a type in words, as in "a list of integers"."""
    if typing.get_origin(kind) is tuple:
        return (
            "a list of "
            f"{_name_type(typing.get_args(kind)[0]).removeprefix('a ').removeprefix('an ')}s"
        )
    if typing.get_origin(kind) is dict:
        return "a table"
    if kind is Any:
        return "a value"
    names = {
        int: "an integer",
        float: "a number",
        str: "a string",
        bool: "true or false",
        dict: "a table",
        type(None): "left out",
    }
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def list_traced(options: Options) -> dict[str, float]:
    """Return the numbers of an Options instance that reach compiled code through `hyper`, by name;
    numbers in its tables by dotted names."""
    pairs = (
        (f.name, getattr(options, f.name))
        for f in dataclasses.fields(options)
        if f.metadata.get("traced")
    )
    found = {name: value for name, value in pairs if value is not None}
    for name, table in _list_tables(options).items():
        found |= {f"{name}.{key}": value for key, value in list_traced(table).items()}
    return found


def drop_traced(options: T) -> T:
    """Reset every traced number to its default; the result is equal for runs that share one
    compiled program."""
    fields = [f for f in dataclasses.fields(options) if f.metadata.get("traced")]
    numbers = {f.name: 0.0 if f.default is dataclasses.MISSING else f.default for f in fields}
    tables = {name: drop_traced(table) for name, table in _list_tables(options).items()}
    return dataclasses.replace(options, **numbers, **tables)


def _list_tables(options: Options) -> dict[str, Options]:
    """Return the options that are Options instances themselves, by name."""
    pairs = ((f.name, getattr(options, f.name)) for f in dataclasses.fields(options))
    return {name: value for name, value in pairs if is_options(value)}


# (group, dotted name) of an option. Only values of the same group are compared.
Key = tuple[str, str]


def find_differing(views: Iterable[Mapping[Key, Value]]) -> set[Key]:
    """Return the keys that have more than one value. 1 and 1.0 are two."""
    first: dict[Key, Value] = {}
    several: set[Key] = set()
    for view in views:
        for key, value in view.items():
            other = first.setdefault(key, value)
            if other is not value and (type(other) is not type(value) or other != value):
                several.add(key)
    return several
