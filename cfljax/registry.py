"""Registries: a name, and where its maker lives. Modules are imported when an entry is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from cfljax.errors import SpecError, suggest
from cfljax.options import NoOptions, check


class Entry(NamedTuple):
    """What a registry holds: the Options class of a thing, and the function that makes it."""

    options: type
    make: Callable[..., Any]

    @property
    def summary(self) -> str:
        """The first line of the maker's docstring."""
        return (self.make.__doc__ or "").strip().split("\n")[0]


class Registry:
    """`name -> "module:attribute"`, the attribute being an Entry."""

    def __init__(self, kind: str, lines: dict[str, str]):
        self.kind = kind
        self._lines: dict[str, str | Entry] = dict(lines)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def add(self, name: str, make: Callable[..., Any], options: type = NoOptions) -> None:
        """Register a user's own."""
        if name in self._lines:
            raise SpecError(f'{self.kind} "{name}" exists already')
        self._lines[name] = Entry(options, make)

    def entry(self, name: str, where: str = "") -> Entry:
        """The entry of that name, or a SpecError with the nearest one."""
        line = self._lines.get(name)
        if line is None:
            raise SpecError(f'{where or self.kind} = "{name}": unknown {self.kind}' + suggest(name, self._lines))
        if isinstance(line, str):
            module, _, attribute = line.partition(":")
            line = self._lines[name] = getattr(importlib.import_module(module), attribute)
        return line

    def check(self, name: str, table: dict[str, Any], where: str) -> Any:
        """The checked Options instance of that entry."""
        return check(self.entry(name, f"{where}.name").options, table, where)
