"""Reading a spec: a TOML file or a dict, and flags. Whatever is wrong with them ends in one SpecError of one line."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cfljax.config import toml
from cfljax.config.flags import apply_sets, choose_size, parse_set
from cfljax.config.grid import make_grid, make_runs
from cfljax.config.layers import Raw, lay, need_table, tidy
from cfljax.config.plugins import load as load_plugins
from cfljax.config.rules import Rule
from cfljax.config.run import Run
from cfljax.config.tables import Known, known
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import show
from cfljax.registry.origin import look_again

_BYTES = 4_000_000
_DEEP = 12
_LONG = 240
_ENTRIES = 1_000_000
_INTEGER = 2**63


@dataclasses.dataclass(frozen=True)
class Spec:
    """A checked spec."""

    name: str
    file: str
    """Where it was read from; "" for a dict."""
    table: dict[str, Any]
    """The spec as written, before flags."""
    sets: tuple[str, ...]
    warnings: tuple[str, ...]
    _runs: tuple[Run, ...] = dataclasses.field(repr=False, default=())

    def runs(self) -> list[Run]:
        """Every run once, in the order of the spec, without a look at the data."""
        return list(self._runs)

    def units(self) -> list[Run]:
        """Every run once by its id: of two places that hold the same data, the first."""
        found: dict[str, Run] = {}
        for run in self._runs:
            found.setdefault(run.id, run)
        return list(found.values())

    def shown(self) -> dict[str, Any]:
        """What of the sweep a results folder's plan keeps for those who show it: its name, the ids of its runs in order, and what
        they are called: a run that two rows of the table share is in both of their lists."""
        called: dict[tuple[str, bool], dict[str, None]] = {}
        for run in self._runs:
            for name in run.called:
                called.setdefault(name, {})[run.id] = None
        labels = [
            {"label": label, "data_seed": "run" if follows else None, "units": list(ids)}
            for (label, follows), ids in called.items()
        ]
        return {"name": self.name, "units": list(dict.fromkeys(run.id for run in self._runs)), "labels": labels}

    def named(self) -> dict[str, dict[str, Any]]:
        """Label and what varies of each run, by id: the record of a run that an earlier spec has computed may have others."""
        return {run.id: {"label": run.label, "varies": dict(run.varies)} for run in self._runs}


def read_spec(
    source: str | os.PathLike[str] | Raw, sets: Iterable[str] = (), has: Known | None = None, plugins: Iterable[str] = ()
) -> Spec:
    """The spec in a TOML file or a dict, with `--set` flags laid over it, checked to the last option. `has`: what can be
    named; by default the registries of the package, and what `plugins` and the spec's own add to them."""
    look_again()
    file = "" if isinstance(source, dict) else os.fspath(source)
    flags: tuple[str, ...] = ()
    try:
        flags = tuple(sets)
        table = load(Path(file)) if not isinstance(source, dict) else source
        clean: Raw = sanitised(table)
        loaded = load_plugins(plugins)
        if "plugins" in clean:
            loaded += load_plugins(_plugins(clean["plugins"]), Path(file).parent, "plugins")
        if loaded:
            clean["plugins"] = loaded
        parsed = [parse_set(flag) for flag in flags]
        parsed = [(path, sanitised(value, ".".join(path))) for path, value in parsed]
        warn: list[str] = []
        runs = build(clean, parsed, has or known(), warn)
        name = _name(clean, parsed, file)
    except SpecError as error:
        raise SpecError(one_line(str(error), file, flags)) from None
    return Spec(name, file, copy.deepcopy(clean), flags, tuple(dict.fromkeys(warn)), tuple(runs))


def build(raw: Raw, sets: list[tuple[list[str], Any]], has: Known, warn: list[str]) -> list[Run]:
    """The runs of a spec with flags: base and includes, the chosen size over both, the flags over all."""
    chosen, size, sets = choose_size(raw, sets)
    whole = {path[0]: value for path, value in sets if len(path) == 1}
    base = tidy({**{key: whole[key] for key in ("data", "method") if key in whole}, **raw})
    layers = [base]
    for i, table in enumerate(_list_of_tables(raw, "include")):
        layers.append(lay(base, table, f"include[{i}]"))
    rules = [Rule(table, f"exclude[{i}]") for i, table in enumerate(_list_of_tables(raw, "exclude"))]
    layers = [apply_sets(lay(layer, size, f"size.{chosen}"), sets) for layer in layers]
    return make_runs([make_grid(layer, has) for layer in layers], rules, has, warn)


def _plugins(value: Any) -> list[Any]:
    """The plugins that a spec names."""
    return value if isinstance(value, list) else [value]


def _list_of_tables(raw: Raw, key: str) -> list[Raw]:
    value = raw.get(key, [])
    return [need_table(item, key) for item in (value if isinstance(value, list) else [value])]


def _name(raw: Raw, sets: list[tuple[list[str], Any]], file: str) -> str:
    name = dict([("name", raw.get("name", Path(file).stem or "sweep"))] + [(p[0], v) for p, v in sets if p == ["name"]])["name"]
    if not isinstance(name, str) or not name.strip():
        raise SpecError(f"name = {show(name)}: must be a text")
    return name


def load(path: Path) -> Raw:
    """The tables of a TOML file."""
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES + 1)
    except FileNotFoundError:
        near = suggest(path.name, _toml_files(path.parent)) if path.parent.is_dir() else ""
        raise SpecError("there is no such file" + near) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > _BYTES:
        raise SpecError(f"has more than {_BYTES:,} bytes; a spec is a small TOML file")
    try:
        return toml.loads(content.decode("utf-8-sig"))  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecError(f"line {line}: is no UTF-8 text") from None
    except RecursionError:
        raise SpecError("tables and lists are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, and Python's own for numbers of thousands of digits
        raise SpecError(_with_line(str(error))) from None


def _toml_files(folder: Path) -> list[str]:
    try:
        return [p.name for p in folder.glob("*.toml")][:1000]
    except OSError:
        return []


def _with_line(message: str) -> str:
    match = re.search(r"\s*\(at line (\d+), column \d+\)", message)
    if match:
        return f"line {match[1]}: {message[: match.start()]}"
    return f"last line: {message.removesuffix(' (at end of document)')}"


def sanitised(value: Any, where: str = "", depth: int = 0, left: list[int] | None = None) -> Any:
    """The value as plain tables, lists, texts, numbers and booleans; bounded in depth and size."""
    left = left if left is not None else [_ENTRIES]
    left[0] -= 1
    if left[0] < 0:
        raise SpecError(f"{where}: the spec has more than {_ENTRIES:,} entries")
    if depth > _DEEP:
        raise SpecError(f"{where[:60]}: nested more than {_DEEP} deep")
    if isinstance(value, dict):
        return {_key(k, where): sanitised(v, f"{where}.{k}" if where else str(k), depth + 1, left) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [sanitised(v, where, depth + 1, left) for v in value]
    if hasattr(value, "item") and not getattr(value, "shape", (1,)):  # a numpy number
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool) and not -_INTEGER <= value < _INTEGER:
        raise SpecError(f"{where[:60]}: an integer has at most 64 bits")
    if isinstance(value, (datetime.date, datetime.time)):
        raise SpecError(f"{where} = {value}: is a date or time; write a text in quotes")
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise SpecError(f"{where} = {value}: must be a finite number")
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):  # a flag's bytes that Python could not read
        raise SpecError(f"{where} = {value!r}: is no UTF-8 text")
    if not isinstance(value, (bool, int, float, str)):
        raise SpecError(f"{where}: {type(value).__name__} is nothing that a spec can hold")
    return value


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str) or not key or not key.isprintable():
        raise SpecError(f"{where + ': ' if where else ''}{key!r} is no key; a key is a printable text")
    return key


def one_line(message: str, file: str, flags: Iterable[str]) -> str:
    """The message on one line, bounded, after the file or flag that it is about."""
    text = " ".join(message.split())
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if len(text) > 2 * _LONG:
        text = f"{text[:_LONG]} … {text[-_LONG:]}"
    if text.startswith("--set"):
        return text
    key = re.split(r"[\s:=]", text, maxsplit=1)[0]
    for flag in flags:
        if isinstance(flag, str) and flag.partition("=")[0].strip() == key:
            return f"--set {text}"
    match = re.match(r"line (\d+): ", text)
    if match and file:
        return f"{file}:{match[1]}: {text[match.end() :]}"
    return f"{file}: {text}" if file else text
