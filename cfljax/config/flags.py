"""From `--set key=value` flags to the spec with their values laid over it, and which of its sizes is chosen."""

from __future__ import annotations

from cfljax.config import toml
from cfljax.config.layers import EITHER, SETTABLE, called, lay, names_of, need_table, options_over
from cfljax.config.values import fields_of
from cfljax.errors import ALIASES, SpecError, suggest
from cfljax.methods import METHODS
from cfljax.registry.options import Table, Value, show

_OPENING, _CLOSING = "([{", ")]}"
_MANY = 10_000

Flag = tuple[list[str], Value]
"""The path of a key and its new value: (["train", "lr"], 0.1)."""


def parse_set(text: str) -> Flag:
    """`a.b=value` as (["a", "b"], value)."""
    if not isinstance(text, str):
        raise SpecError(f"--set {text!r}: must be a string, as in train.lr=0.1")
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise SpecError(f"--set {text}: must be key=value, as in train.lr=0.1")
    if not value.strip():
        raise SpecError(f"--set {text}: the value is missing")
    if path[0] not in (*SETTABLE, "size"):
        raise SpecError(f"--set {text}: {path[0]}: there is no such table or key" + _whole_name(path[0]))
    return path, parse_value(value, f"--set {text}")


def _whole_name(key: str) -> str:
    """Where an option stands whose table a flag left out."""
    from cfljax.config.train import Train

    name = ALIASES.get(key, key)
    if name in fields_of(Train):
        return f'; did you mean "train.{name}"?'
    if any(name in fields_of(METHODS.entry(each).options) for each in METHODS):
        return f'; did you mean "method.NAME.{name}"?'
    return suggest(key, (*SETTABLE, "size"))


def parse_value(text: str, where: str) -> Value:
    """The value that a flag writes: TOML, a word without quotes, or several of them with commas between them (a list)."""
    text = text.strip()
    is_toml, value = _toml(text)
    if is_toml:
        return value
    parts = split(text)
    if len(parts) > 1:
        if not all(part.strip() for part in parts):
            raise SpecError(f"{where}: a value is missing between two commas")
        if len(parts) > _MANY:
            raise SpecError(f"{where}: more than {_MANY:,} values")
        return [parse_value(part, where) for part in parts]
    if text[0] in "[{\"'" or any(ord(c) < 32 for c in text):
        raise SpecError(f"{where}: {show(text)} is not a TOML value")
    return text


def _toml(text: str) -> tuple[bool, Value]:
    """(Whether the text is one TOML value, the value.)"""
    try:
        table = toml.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return False, None
    value = table.get("x")
    return set(table) == {"x"} and isinstance(value, (str, int, float, list, dict)), value


def split(text: str) -> list[str]:
    """The pieces of the text between commas that are not inside brackets or quotes."""
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


def apply_sets(raw: Table, sets: list[Flag]) -> Table:
    """The tidy spec with the flags laid over it: whole tables first, then options, in the order given."""
    for path, value in sorted(sets, key=lambda s: len(s[0]) > 1):
        where = ".".join(path)
        if len(path) == 1:
            raw = lay(raw, {path[0]: value}, "--set")
        elif path[0] == "method":
            raw = {**raw, "method": _set_method(raw["method"], path[1:], value, where)}
        elif path[0] in ("data", "model", "train"):
            raw = {**raw, path[0]: [set_in(table, path[1:], value, where) for table in raw[path[0]]]}
        elif path[0] in ("defaults", "search"):
            raw = {**raw, path[0]: set_in(need_table(raw.get(path[0], {}), path[0]), path[1:], value, where)}
        else:
            raise SpecError(f"{where}: {path[0]} has no options; write {path[0]}={show(value)}")
    return raw


def _set_method(methods: list[Table], path: list[str], value: Value, where: str) -> list[Table]:
    name, rest = path[0], path[1:]
    if not rest:
        raise SpecError(f"{where}: write method.NAME.option=value" + suggest(name, names_of(methods)))
    if not any(called(table, name) for table in methods):
        raise SpecError(f"{where}: the spec has no method {name}" + suggest(name, names_of(methods)))
    return [set_in(table, rest, value, where) if called(table, name) else table for table in methods]


def set_in(table: Table, path: list[str], value: Value, where: str) -> Table:
    """A copy of the table with the value at that path; a name on the way becomes a table with that name."""
    key, rest = path[0], path[1:]
    if not rest:
        return options_over(table, {key: value}) if key in EITHER else {**table, key: value}
    inner = table.get(key, {})
    if isinstance(inner, str):
        inner = {"name": inner}
    return {**table, key: set_in(need_table(inner, where), rest, value, where)}


def choose_size(raw: Table, sets: list[Flag]) -> tuple[str, Table, list[Flag]]:
    """The chosen size, the table to lay over the spec for it, and the flags that are left."""
    written = raw.get("size", {})
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
            raise SpecError("size.full: full means the spec without a size; give the table another name")
        need_table(table, f"size.{name}")
    if chosen != "full" and chosen not in sizes:
        raise SpecError(f'size = "{chosen}": unknown size' + suggest(chosen, [*sizes, "full"]))
    return chosen, sizes.get(chosen, {}), rest
