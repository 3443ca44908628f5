"""Plain, hashable and canonical forms of options: what ids and keys are made of."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, NoReturn

from cfljax.registry.checksums import sum_of_file
from cfljax.registry.options import files_of


class Table(dict[str, Any]):
    """A table as the value of an option (`optimizer = { name = "adam", b1 = 0.8 }`): read-only and hashable."""

    def __init__(self, items: dict[str, Any]):
        super().__init__({key: freeze(items[key]) for key in sorted(items)})

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("an option's table is read-only")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]


def freeze(value: Any) -> Any:
    """Dicts as `Table`, lists as tuples, all the way down."""
    if isinstance(value, dict):
        return Table(value)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    return value


def plain(value: Any) -> Any:
    """Dataclasses and tables as dicts, tuples as lists; options that are left out (None) are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: plain(v) for name, v in pairs if v is not None}
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def canonical(value: Any, unread: bool = False) -> str:
    """JSON that is equal exactly when the options mean the same. Files that options name count by their contents; `unread`: by
    their place. An immutable options object remembers its own."""
    memory = getattr(value, "__dict__", None) if dataclasses.is_dataclass(value) else None
    if memory is None:
        return _dump(value)
    key = "_spelled" if unread else "_canonical"
    if key not in memory:
        files = {name: os.path.realpath(file) if unread else sum_of_file(file) for name, file in files_of(value).items()}
        memory[key] = _dump(value, files)
    return str(memory[key])


def essential(value: Any) -> dict[str, Any]:
    """`plain` options without those that came later and are at their default, and without the names of files."""
    skipped = {f.name for f in dataclasses.fields(value) if f.metadata.get("file") or _unsaid(f, getattr(value, f.name))}
    return {name: each for name, each in plain(value).items() if name not in skipped}


def _unsaid(field: Any, value: Any) -> bool:
    return bool(field.metadata.get("later")) and value == field.default


def _dump(value: Any, files: dict[str, str] | None = None) -> str:
    exact = _exact(value)
    return json.dumps(exact | files if files else exact, sort_keys=True, separators=(",", ":"))


def _exact(value: Any, loose: bool = False) -> Any:
    """`plain`, with −0.0 as 0.0, without options that came later and are at their default. Inside tables, which have no declared
    types, 1.0 is written as 1."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: _exact(v, loose) for f, v in pairs if v is not None and not _unsaid(f, v)}
    if isinstance(value, dict):
        return {key: _exact(v, True) for key, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_exact(v, loose) for v in value]
    if isinstance(value, float):
        return int(value) if loose and value.is_integer() else value + 0.0
    return value
