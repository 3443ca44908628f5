"""From names in specs to entries. An entry's module is imported when the entry is first used.

A name may be registered by the package, by the user, or by an installed package that offers it as
an entry point. The hash of the source of an entry that is not part of the package is part of a
run's id, so that results of two versions never mix."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from cfljax import lazy
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import NoOptions, Table, check
from cfljax.registry.sources import find_package as files_of_package
from cfljax.registry.sources import find_program, hash_code, source_text

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")
_when_replaced: list[Callable[[], None]] = []
_registries: dict[str, Registry[Any]] = {}

Make = TypeVar("Make", bound=Callable[..., object])
"""The kind of function that a registry's entries have, such as `Callable[[Seen], Array]` for
metrics."""


class Entry(NamedTuple, Generic[Make]):
    """An entry of a registry: a class of options, and the function that makes the thing. An
    installed package may offer one as an entry point."""

    options: type
    make: Make
    files: Callable[..., list[tuple[str, Path]]] | None = None
    """For data sets: (options, folders) -> (role, file) of all that is read."""

    @property
    def summary(self) -> str:
        """The first sentence of the docstring of `make`, on one line."""
        words = " ".join((self.make.__doc__ or "").split())
        # A full stop inside of a sentence, as in "et al. 2020", has no capital letter behind it
        return re.split(r"(?<=[.!?]) (?=[A-Z`])", words, maxsplit=1)[0]


class Origin(NamedTuple):
    """Where a user's entry comes from."""

    # SHA-256 of the source, 64 hexadecimal digits
    code: str
    # The file or module that another process must load to have the entry; "" where none is known
    plugin: str = ""


_current_origins: list[Origin] = []


@contextlib.contextmanager
def load_as(origin: Origin) -> Iterator[None]:
    """Give this origin to everything that is registered in this context. JAX is loaded first,
    because what registers may use it."""
    lazy.load()
    _current_origins.append(origin)
    try:
        yield
    finally:
        _current_origins.pop()


def _find_origin(make: Callable[..., object], options: type, version: object) -> Origin:
    """Return the origin of an entry that no plugin registers: of the file which defines it and of
    what this file imports, or of the text of a function in a notebook. Its code is "" if Python
    does not have the text and no version was given."""
    file = _find_file(make)
    try:
        text = (
            hash_code(find_program([file], file.parent))
            if file.is_file()
            else f"{source_text(make)}\n{_describe_fields(options)}"
        )
    except (OSError, TypeError):
        text = ""
    return Origin(
        hashlib.sha256(f"{text} {version}".encode()).hexdigest()
        if text or version is not None
        else ""
    )


def _find_file(make: Callable[..., object]) -> Path:
    """Return the file that defines the function or class; Path("") if there is none."""
    made = inspect.unwrap(make)
    code = getattr(made, "__code__", None)
    module = sys.modules.get(getattr(made, "__module__", ""))
    return Path(code.co_filename if code is not None else getattr(module, "__file__", None) or "")


def _describe_fields(options: type) -> str:
    """Return the options of a class as text: a notebook's class has no file to hash. What is worth
    trying changes no result."""
    described = [
        (f.name, f.type, f.default, {k: v for k, v in f.metadata.items() if k != "search"})
        for f in dataclasses.fields(options)
    ]
    return source_text(described)


def _find_object(line: str) -> Any:
    """Import the object of a line "module:attribute"."""
    module, _, attribute = line.partition(":")
    return getattr(importlib.import_module(module), attribute)


def when_replaced(forget: Callable[[], None]) -> None:
    """Call `forget` whenever a name is redefined, so that caches of what entries have made are
    cleared."""
    _when_replaced.append(forget)


def list_origins(named: Iterable[tuple[str, str]]) -> tuple[Origin, ...]:
    """Return the origins of the users' entries among these (kind, name), each once. Names of the
    package have no origin, nor have kinds that no registry of this process knows."""
    found = (_registries[kind].origin(name) for kind, name in named if kind in _registries)
    return tuple(dict.fromkeys(origin for origin in found if origin is not None))


def list_registered(plugin: str) -> list[tuple[str, str]]:
    """List the (kind, name) of what a plug-in has registered. `plugin`: as `plugins.load` returns
    it."""
    return [
        (kind, name)
        for kind, registry in _registries.items()
        for name, origin in registry._origins.items()
        if origin.plugin == plugin
    ]


def adopt(files: Collection[str], origin: Origin) -> None:
    """Give this origin to all that these files have registered: a plugin may be imported before it
    is named."""
    for registry in _registries.values():
        registry.adopt(files, origin)


class Registry(Generic[Make]):
    """The entries of one kind.

    Args:
        kind: what messages call an entry, such as "method".
        lines: name -> "module:attribute" of an Entry, of a function without options, or of an
            object from which `maker` makes an Entry.
        group: the entry points of installed packages that add to it.
        base: a class that all Options inherit from; it is added to a plug-in's Options that do not.
        maker: "module:attribute" of a function (name, object) -> Entry."""

    def __init__(
        self,
        kind: str,
        lines: dict[str, str],
        group: str | None = None,
        base: type = object,
        maker: str = "",
    ):
        self.kind = kind
        self.base = base
        self._maker = maker
        self.group = group
        self._lines: dict[str, str | Entry[Make]] = dict(lines)
        self._origins: dict[str, Origin] = {}
        self._installed: dict[str, importlib.metadata.EntryPoint] | None = None
        if group is not None:
            _registries[kind] = self

    def __iter__(self) -> Iterator[str]:
        return iter({**self._lines, **self._entry_points()})

    def __contains__(self, name: object) -> bool:
        return name in self._lines or name in self._entry_points()

    def add(self, name: str, make: Make, options: type = NoOptions, version: object = None) -> None:
        """Register a user's entry. It replaces an earlier one of the user's (a notebook's cell that
        is run twice); what comes with the package cannot be replaced. `version`: part of its runs'
        ids, for what its source does not say."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SpecError(
                f"{self.kind} {name!r}: a name begins with a letter and has letters, digits, "
                "_ and - only"
            )
        if name in self._lines and name not in self._origins:
            raise SpecError(f'{self.kind} "{name}" exists already')
        if not (isinstance(options, type) and dataclasses.is_dataclass(options)):
            raise SpecError(
                f'{self.kind} "{name}": options = {options!r:.60}: must be a frozen '
                "dataclass (the class itself)"
            )
        if name in self._origins:
            for forget in _when_replaced:
                forget()
        self._lines[name] = self._with_base(Entry(options, make))
        self._origins[name] = (
            _current_origins[-1] if _current_origins else _find_origin(make, options, version)
        )

    def entry(self, name: str, where: str = "") -> Entry[Make]:
        """Return the entry of that name; a SpecError suggests the nearest name."""
        line = self._lines.get(name)
        if line is None and name in self._entry_points():
            line = self._load_entry_point(name)
        if line is None:
            raise SpecError(
                f'{where or self.kind} = "{name}": unknown {self.kind}' + suggest(name, self)
            )
        if isinstance(line, str):
            found = _find_object(line)
            if not isinstance(found, Entry):
                found = (
                    _find_object(self._maker)(name, found)
                    if self._maker
                    else Entry(NoOptions, found)
                )
            line = self._lines[name] = found
        return line

    def is_built_in(self, name: str) -> bool:
        """Return whether the entry comes with the package."""
        return name in self._lines and name not in self._origins

    def origin(self, name: str) -> Origin | None:
        """Return where a user's entry comes from; None for an entry of the package."""
        if name not in self._lines and name in self._entry_points():
            self._load_entry_point(name)
        own = self._origins.get(name)
        if own is not None and not own.code:
            what = (
                f'the source of {self.kind} "{name}" cannot be read, so its versions cannot be '
                "distinguished"
            )
            raise SpecError(
                f'{what}; give its register function a version, as in version="1", and a new '
                "one with each change"
            )
        return own

    def adopt(self, files: Collection[str], origin: Origin) -> None:
        """Give this origin to what these files have registered here."""
        for name in self._origins:
            entry = self._lines[name]
            if isinstance(entry, Entry) and str(_find_file(entry.make)) in files:
                self._origins[name] = origin

    def check(self, name: str, table: Table, where: str) -> Any:
        """Check the table and make an instance of the entry's Options class."""
        return check(self.entry(name, f"{where}.name").options, table, where)

    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        """Return the entry points of installed packages by name, looked up at the first call."""
        if self._installed is None:
            found = importlib.metadata.entry_points(group=self.group) if self.group else ()
            self._installed = {
                point.name: point for point in found if point.name not in self._lines
            }
        return self._installed

    def _load_entry_point(self, name: str) -> Entry[Make]:
        """Load the entry behind an entry point: an Entry, or a function that its module has
        registered."""
        point = self._entry_points()[name]
        package = "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        try:
            code = hash_code(find_program(files_of_package(point.module)))
            origin = Origin(hashlib.sha256(f"{package} {code}".encode()).hexdigest(), point.module)
            with load_as(origin):
                found = point.load()
        # A foreign package may raise anything on import
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise SpecError(
                f'{self.kind} "{name}" of the package {package}: cannot be imported ({what})'
            ) from error
        if not isinstance(found, Entry) and name not in self._lines:
            raise SpecError(
                f'{self.kind} "{name}" of the package {package}: {point.value} is neither an '
                f'Entry nor registered as "{name}"'
            )
        entry = found if isinstance(found, Entry) else self._lines[name]
        assert isinstance(entry, Entry)
        entry = self._with_base(entry)
        self._lines[name], self._origins[name] = entry, origin
        return entry

    def _with_base(self, entry: Entry[Make]) -> Entry[Make]:
        """Return the entry with Options that have the options of `base`, too."""
        if issubclass(entry.options, self.base) or not dataclasses.is_dataclass(entry.options):
            return entry
        names = {
            name: getattr(entry.options, name) for name in ("__module__", "__qualname__", "__doc__")
        }
        if not (dataclasses.is_dataclass(self.base) and dataclasses.fields(self.base)):
            return entry._replace(
                options=type(entry.options.__name__, (entry.options, self.base), names)
            )
        own = {field.name for field in dataclasses.fields(entry.options)}
        hints = get_type_hints(self.base)
        # An option that the user's class has under the same name stays
        more = [
            (
                field.name,
                hints[field.name],
                dataclasses.field(default=field.default, metadata=field.metadata, kw_only=True),
            )
            for field in dataclasses.fields(self.base)
            if field.name not in own
        ]
        made = dataclasses.make_dataclass(
            entry.options.__name__, more, bases=(entry.options,), namespace=names, frozen=True
        )
        return entry._replace(options=made)
