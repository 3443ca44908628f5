"""From options to the forms that ids are made of: hashable tables, plain tables, and canonical
JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from cfljax.registry.checksums import hash_file
from cfljax.registry.options import Options, Table, Value, is_options, list_files


class FrozenTable(dict[str, Value]):
    """A table as the value of an option (`optimizer = { name = "adam", b1 = 0.8 }`): read-only and
    hashable."""

    def __init__(self, items: Table):
        super().__init__({key: freeze(items[key]) for key in sorted(items)})

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[type[FrozenTable], tuple[Table]]:
        return FrozenTable, (dict(self),)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an option's table is read-only")

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    update = pop = popitem = clear = setdefault = _refuse  # type: ignore[assignment]


def freeze(value: Value) -> Value:
    """Convert dicts to `FrozenTable` and lists to tuples, at every depth."""
    if isinstance(value, dict):
        return FrozenTable(value)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    return value


def to_plain(value: Options | Value) -> Value:
    """Convert dataclasses and tables to dicts, and tuples to lists; None is left out."""
    if is_options(value):
        table: Table = {}
        for field in dataclasses.fields(value):
            if (each := getattr(value, field.name)) is not None:
                table |= (
                    to_plain(each) if field.metadata.get("beside") else {field.name: to_plain(each)}
                )
        return table
    if isinstance(value, dict):
        return {key: to_plain(v) for key, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    return value


# A function that returns what stands in an id for a file that an option names
OfFile = Callable[[Path], str]


def canonical(value: Options | Value, of_file: OfFile = hash_file) -> str:
    """Return JSON that is equal exactly when the options mean the same. An option at its default is
    left out, so that an option which is added to a class changes nothing. Files that options name
    count by what `of_file` says of them. The JSON is kept in the options object, which is
    immutable."""
    memory: dict[object, str] = getattr(value, "__dict__", {}) if is_options(value) else {}
    key = f"_canonical_{of_file.__name__}"
    if key not in memory:
        exact = _to_exact(value, False, of_file)
        memory[key] = json.dumps(exact, sort_keys=True, separators=(",", ":"))
    return memory[key]


def to_essential(value: Options) -> Table:
    """Return the plain options without file names, and without options at their default."""
    skipped = {
        f.name
        for f in dataclasses.fields(value)
        if f.metadata.get("file") or _at_default(f, getattr(value, f.name))
    }
    return {name: each for name, each in to_plain(value).items() if name not in skipped}


def _at_default(field: dataclasses.Field[Value], value: Value) -> bool:
    # The type counts: a participation of 1 is one client, of 1.0 all of them
    return type(value) is type(field.default) and bool(value == field.default)


def _to_exact(value: Value, loose: bool, of_file: OfFile) -> Value:
    """Convert as `to_plain` does, −0.0 to 0.0, without defaults. Inside tables (`loose`), which
    declare no types, 1.0 becomes 1."""
    if is_options(value):
        files = {name: of_file(file) for name, file in list_files(value).items()}
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {
            f.metadata.get("was") or f.name: _to_exact(v, loose, of_file)
            for f, v in pairs
            if v is not None and not _at_default(f, v)
        } | files
    if isinstance(value, dict):
        return {key: _to_exact(v, True, of_file) for key, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_to_exact(v, loose, of_file) for v in value]
    if isinstance(value, float):
        return int(value) if loose and value.is_integer() else value + 0.0
    return value
