"""From names in specs to entries. An entry's module is imported when the entry is first used.

A name may be registered by the package, by the user, or by an installed package that offers it as an entry point. The sum of the
source of an entry that is not part of the package is part of a run's id, so that results of two versions never mix."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from cfljax import lazy
from cfljax.errors import SpecError, SpecWarning, suggest
from cfljax.registry.meaning import meaning
from cfljax.registry.options import NoOptions, Table, check
from cfljax.registry.sources import is_users, program, program_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")
_when_replaced: list[Callable[[], None]] = []
_of_kind: dict[str, Registry[Any]] = {}
_RETURNED = ("data set", "partition")
"""The kinds whose returned values, and not only their programs, are part of a run's id."""


Make = TypeVar("Make", bound=Callable[..., object])
"""The kind of function that a registry's entries have, such as `Callable[[Seen], Array]` for metrics."""


class Entry(NamedTuple, Generic[Make]):
    """What a registry holds: the Options class of a thing, and the function that makes the thing."""

    options: type
    make: Make
    files: Callable[..., list[tuple[str, Path]]] | None = None
    """For data sets: (options, folders) -> (role, file) of all that is read."""

    @property
    def summary(self) -> str:
        """The first line of the docstring of `make`."""
        return (self.make.__doc__ or "").strip().split("\n")[0]


class Origin(NamedTuple):
    """Where a user's entry comes from."""

    code: str
    """SHA-256 of the source, 64 hexadecimal digits."""
    plugin: str = ""
    """The file or module that another process must load to have the entry; "" where none is known."""


_loading: list[Origin] = []


@contextlib.contextmanager
def loading(origin: Origin) -> Iterator[None]:
    """Give this origin to everything that is registered in this context. JAX is loaded first, since what registers may use it."""
    lazy.load()
    _loading.append(origin)
    try:
        yield
    finally:
        _loading.pop()


_looks = [0]
"""How often specs were read. A live entry is summed again once for each of them."""


def look_again() -> None:
    """Tell live entries that a spec is read: since the last one, what was registered without a file may mean something else."""
    _looks[0] += 1


class Live:
    """The origin of an entry that a notebook, a script or a module registers without being named as a plugin. Its sum is made of
    what the entry's functions, and all that they refer to, mean now, and of the files of the module that it is defined in."""

    def __init__(self, make: Callable[..., object], options: type):
        self.things = (make, options)
        self.file = sum_of(_program_around(getattr(make, "__module__", None) or ""))
        self.last: Origin | None = None
        self.unknown: list[str] = []
        self._look = -1

    def now(self) -> Origin:
        """The origin as of now."""
        if self.last is None or self._look != _looks[0]:
            self._look = _looks[0]
            code, self.unknown = meaning(*self.things)
            self.last = Origin(hashlib.sha256(f"{self.file} {code}".encode()).hexdigest())
        return self.last


def _program_around(module: str) -> list[Path]:
    """The files of the program that a module is part of; no files for a notebook and for cfljax itself."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or not Path(file).is_file() or module.partition(".")[0] == "cfljax":
        return []
    return program([Path(file)]) if is_users(file) else [] if module == "__main__" else program_of(module)


def sum_of(files: list[Path]) -> str:
    """SHA-256 over the contents of files, in this order."""
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def when_replaced(forget: Callable[[], None]) -> None:
    """Call `forget` whenever a name comes to mean something else. Caches of what entries have made use it to empty themselves."""
    _when_replaced.append(forget)


def origins(named: Iterable[tuple[str, str]]) -> tuple[Origin, ...]:
    """The origins of the users' entries among these (kind, name), each once. Names of the package have no origin, nor have kinds
    that no registry of this process knows."""
    found = (_of_kind[kind].origin(name) for kind, name in named if kind in _of_kind)
    return tuple(dict.fromkeys(origin for origin in found if origin is not None))


def adopt(files: Collection[str], origin: Origin) -> None:
    """Give this origin to all that the modules of these files have registered: a plugin may be imported before it is named."""
    for registry in _of_kind.values():
        registry.adopt(files, origin)


class Registry(Generic[Make]):
    """The entries of one kind. `lines`: name -> "module:attribute" of an Entry. `group`: the entry points that add to it. `base`: a
    class that all Options inherit from; it is added to those of a plug-in that do not."""

    def __init__(self, kind: str, lines: dict[str, str], group: str | None = None, base: type = object):
        self.kind = kind
        self.base = base
        self.group = group
        self._lines: dict[str, str | Entry[Make]] = dict(lines)
        self._own: dict[str, Origin | Live] = {}
        self._offered: dict[str, importlib.metadata.EntryPoint] | None = None
        if group is not None:
            _of_kind[kind] = self

    def __iter__(self) -> Iterator[str]:
        return iter({**self._lines, **self._entry_points()})

    def __contains__(self, name: object) -> bool:
        return name in self._lines or name in self._entry_points()

    def add(self, name: str, make: Make, options: type = NoOptions) -> None:
        """Register a user's entry. It replaces an earlier one of the user's (a notebook's cell that is run twice); what comes with
        the package cannot be replaced."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SpecError(f"{self.kind} {name!r}: a name begins with a letter and has letters, digits, _ and - only")
        if name in self._lines and name not in self._own:
            raise SpecError(f'{self.kind} "{name}" exists already')
        if not (isinstance(options, type) and dataclasses.is_dataclass(options)):
            raise SpecError(f'{self.kind} "{name}": options = {options!r:.60}: must be a frozen dataclass (the class itself)')
        if name in self._own:
            for forget in _when_replaced:
                forget()
        self._lines[name] = self._with_base(Entry(options, make))
        self._own[name] = _loading[-1] if _loading else Live(make, options)

    def entry(self, name: str, where: str = "") -> Entry[Make]:
        """The entry of that name, or a SpecError that suggests the nearest name."""
        line = self._lines.get(name)
        if line is None and name in self._entry_points():
            line = self._take(name)
        if line is None:
            raise SpecError(f'{where or self.kind} = "{name}": unknown {self.kind}' + suggest(name, self))
        if isinstance(line, str):
            module, _, attribute = line.partition(":")
            found: Entry[Make] = getattr(importlib.import_module(module), attribute)
            line = self._lines[name] = found
        return line

    def ours(self, name: str) -> bool:
        """Whether the entry comes with the package."""
        return name in self._lines and name not in self._own

    def origin(self, name: str) -> Origin | None:
        """Where a user's entry comes from; None for an entry of the package."""
        if name not in self._lines and name in self._entry_points():
            self._take(name)
        own = self._own.get(name)
        return self._now(name, own) if isinstance(own, Live) else own

    def _now(self, name: str, live: Live) -> Origin:
        """The origin of an entry that was registered without a file, from what it means now."""
        before, origin = live.last, live.now()
        if before is not None and before != origin:
            for forget in _when_replaced:
                forget()
        if before != origin and live.unknown and self.kind not in _RETURNED:
            warnings.warn(
                f'{self.kind} "{name}": depends on {", ".join(live.unknown[:3])}, whose contents cannot be made part of the id '
                "of its runs; when they change, use another results folder",
                SpecWarning,
                stacklevel=2,
            )
        return origin

    def adopt(self, files: Collection[str], origin: Origin) -> None:
        """Give this origin to what the modules of these files have registered here."""
        for name in self._own:
            entry = self._lines[name]
            module = sys.modules.get(getattr(entry.make, "__module__", "")) if isinstance(entry, Entry) else None
            if getattr(module, "__file__", None) in files:
                self._own[name] = origin

    def check(self, name: str, table: Table, where: str) -> Any:
        """The table as a checked instance of the entry's Options class."""
        return check(self.entry(name, f"{where}.name").options, table, where)

    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        """The entry points of installed packages by name. They are looked up once."""
        if self._offered is None:
            found = importlib.metadata.entry_points(group=self.group) if self.group else ()
            self._offered = {point.name: point for point in found if point.name not in self._lines}
        return self._offered

    def _take(self, name: str) -> Entry[Make]:
        """The entry behind an entry point: an Entry, or a function that its module has registered."""
        point = self._entry_points()[name]
        package = "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        try:
            origin = Origin(_sum_of_package(point, package), point.module)
            with loading(origin):
                found = point.load()
        except Exception as error:  # whatever a foreign package raises on import
            what = f"{type(error).__name__}: {error}"
            raise SpecError(f'{self.kind} "{name}" of the package {package}: cannot be imported ({what})') from error
        if not isinstance(found, Entry) and name not in self._lines:
            raise SpecError(
                f'{self.kind} "{name}" of the package {package}: {point.value} is neither an Entry nor registered as "{name}"'
            )
        entry = found if isinstance(found, Entry) else self._lines[name]
        assert isinstance(entry, Entry)
        entry = self._with_base(entry)
        self._lines[name], self._own[name] = entry, origin
        return entry

    def _with_base(self, entry: Entry[Make]) -> Entry[Make]:
        """The entry, with Options that are a kind of the base."""
        if issubclass(entry.options, self.base) or not dataclasses.is_dataclass(entry.options):
            return entry
        names = {name: getattr(entry.options, name) for name in ("__module__", "__qualname__", "__doc__")}
        if not (dataclasses.is_dataclass(self.base) and dataclasses.fields(self.base)):
            return entry._replace(options=type(entry.options.__name__, (entry.options, self.base), names))
        own, hints = {field.name for field in dataclasses.fields(entry.options)}, get_type_hints(self.base)
        more = [
            (field.name, hints[field.name], dataclasses.field(default=field.default, metadata=field.metadata, kw_only=True))
            for field in dataclasses.fields(self.base)
            if field.name not in own  # an option of the user's of this name stays
        ]
        made = dataclasses.make_dataclass(entry.options.__name__, more, bases=(entry.options,), namespace=names, frozen=True)
        return entry._replace(options=made)


def _sum_of_package(point: importlib.metadata.EntryPoint, package: str) -> str:
    """SHA-256 of a package's version and of the source of its Python files: of those that it lists, and of all that lie beside the
    module (a package that is installed with `pip install -e` lists none)."""
    listed = [Path(str(file.locate())) for file in (point.dist and point.dist.files) or [] if file.suffix == ".py"]
    files = {file.resolve() for file in listed if file.is_file()} | set(program_of(point.module))
    return hashlib.sha256(f"{package} {sum_of(sorted(files))}".encode()).hexdigest()
