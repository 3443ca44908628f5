"""`--set key=value` and the choice of a size."""

from __future__ import annotations

from typing import Any

from cfljax.config import toml
from cfljax.config.layers import (
    EITHER,
    SETTABLE,
    Raw,
    called,
    lay,
    names_of,
    need_table,
    options_over,
)
from cfljax.errors import SpecError, suggest
from cfljax.registry.options import show

_OPENING, _CLOSING = "([{", ")]}"
_MANY = 10_000


def parse_set(text: str) -> tuple[list[str], Any]:
    """`a.b=value` as (["a", "b"], value)."""
    if not isinstance(text, str):
        raise SpecError(f"--set {text!r}: must be text, as in train.lr=0.1")
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise SpecError(f"--set {text}: must be key=value, as in train.lr=0.1")
    if not value.strip():
        raise SpecError(f"--set {text}: the value is missing")
    if path[0] not in (*SETTABLE, "size"):
        raise SpecError(f"--set {text}: {path[0]}: there is no such table or key" + suggest(path[0], (*SETTABLE, "size")))
    return path, parse_value(value, f"--set {text}")


def parse_value(text: str, where: str) -> Any:
    """A TOML value; a bare word is a string; commas make a list."""
    text = text.strip()
    found, value = _toml(text)
    if found:
        return value
    parts = split(text)
    if len(parts) > 1:
        if not all(part.strip() for part in parts):
            raise SpecError(f"{where}: an empty place between commas")
        if len(parts) > _MANY:
            raise SpecError(f"{where}: more than {_MANY:,} values")
        return [parse_value(part, where) for part in parts]
    if text[0] in "[{\"'" or any(ord(c) < 32 for c in text):
        raise SpecError(f"{where}: {show(text)} is no TOML value")
    return text


def _toml(text: str) -> tuple[bool, Any]:
    try:
        table = toml.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return False, None
    value = table.get("x")
    return set(table) == {"x"} and isinstance(value, (str, int, float, list, dict)), value


def split(text: str) -> list[str]:
    """Cut at the commas that are in no bracket or quote."""
    parts, depth, quote, last = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[last:at])
            last = at + 1
    return [*parts, text[last:]]


def apply_sets(raw: Raw, sets: list[tuple[list[str], Any]]) -> Raw:
    """The tidy spec with the flags laid over it: whole tables first, then options, in the order given."""
    for path, value in sorted(sets, key=lambda s: len(s[0]) > 1):
        where = ".".join(path)
        if len(path) == 1:
            raw = lay(raw, {path[0]: value}, "--set")
        elif path[0] == "method":
            raw = {**raw, "method": _set_method(raw["method"], path[1:], value, where)}
        elif path[0] in ("data", "model", "train"):
            raw = {**raw, path[0]: [set_in(table, path[1:], value, where) for table in raw[path[0]]]}
        elif path[0] == "defaults":
            raw = {**raw, "defaults": set_in(need_table(raw.get("defaults", {}), "defaults"), path[1:], value, where)}
        else:
            raise SpecError(f"{where}: {path[0]} has no options; write {path[0]}={show(value)}")
    return raw


def _set_method(methods: list[Raw], path: list[str], value: Any, where: str) -> list[Raw]:
    name, rest = path[0], path[1:]
    if not rest:
        near = suggest(name, names_of(methods))
        raise SpecError(f"{where}: write method.NAME.option=value" + near)
    if not any(called(table, name) for table in methods):
        raise SpecError(f"{where}: the spec has no method {name}" + suggest(name, names_of(methods)))
    return [set_in(table, rest, value, where) if called(table, name) else table for table in methods]


def set_in(table: Raw, path: list[str], value: Any, where: str) -> Raw:
    """A copy of the table with the value at that path; a name on the way becomes a table with that name."""
    key, rest = path[0], path[1:]
    if not rest:
        return options_over(table, {key: value}) if key in EITHER else {**table, key: value}
    inner: Any = table.get(key, {})
    if isinstance(inner, str):
        inner = {"name": inner}
    return {**table, key: set_in(need_table(inner, where), rest, value, where)}


def choose_size(raw: Raw, sets: list[tuple[list[str], Any]]) -> tuple[str, Raw, list[tuple[list[str], Any]]]:
    """The chosen size, the table to lay over the spec for it, and the flags that are left."""
    written: Any = raw.get("size", {})
    chosen = written if isinstance(written, str) else "full"
    sizes = {} if isinstance(written, str) else need_table(written, "size")
    rest = []
    for path, value in sets:
        if path[0] != "size":
            rest.append((path, value))
        elif len(path) > 1 or not isinstance(value, str):
            raise SpecError(f"--set {'.'.join(path)}={show(value)}: must be size=NAME")
        else:
            chosen = value
    for name, table in sizes.items():
        if name == "full":
            raise SpecError("size.full: is the name of the spec as it stands; call the table otherwise")
        need_table(table, f"size.{name}")
    if chosen != "full" and chosen not in sizes:
        raise SpecError(f'size = "{chosen}": unknown size' + suggest(chosen, [*sizes, "full"]))
    return chosen, sizes.get(chosen, {}), rest
