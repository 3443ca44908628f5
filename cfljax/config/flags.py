"""From `--set key=value` flags to the spec with their values laid over it, and which of its sizes
is chosen."""

from __future__ import annotations

import itertools
import tomllib

from cfljax.config.layers import (
    EXCLUSIVE,
    SETTABLE_KEYS,
    has_name,
    lay_options,
    lay_over,
    list_names,
    need_table,
)
from cfljax.config.values import list_fields
from cfljax.errors import ALIASES, SpecError, suggest
from cfljax.local.rates import split_schedule
from cfljax.methods import METHODS
from cfljax.registry.options import Table, Value, show

_OPENING, _CLOSING = "([{", ")]}"

# The path of a key and its new value: (["train", "lr"], 0.1)
Flag = tuple[list[str], Value]
_RATES = (["train", "lr"], ["server", "lr"])


def parse_set(text: str) -> Flag:
    """Parse `a.b=value` to (["a", "b"], value)."""
    if not isinstance(text, str):
        raise SpecError(f"--set {text!r}: must be a string, as in train.lr=0.1")
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise SpecError(f"--set {text}: must be key=value, as in train.lr=0.1")
    if not value.strip():
        raise SpecError(f"--set {text}: the value is missing")
    if path[0] not in (*SETTABLE_KEYS, "size"):
        raise SpecError(
            f"--set {text}: {path[0]}: there is no such table or key" + _suggest_full_name(path[0])
        )
    return path, parse_value(value, f"--set {text}")


def _suggest_full_name(key: str) -> str:
    """Return words that suggest the key that is meant: one of `train`, of a method, or of the
    spec."""
    from cfljax.config.train import Train

    name = ALIASES.get(key, key)
    if name in list_fields(Train):
        return f'; did you mean "train.{name}"?'
    if any(name in list_fields(METHODS.entry(each).options) for each in METHODS):
        return f'; did you mean "method.NAME.{name}"?'
    return suggest(key, (*SETTABLE_KEYS, "size"))


def parse_value(text: str, where: str) -> Value:
    """Parse the value of a flag: TOML, a word without quotes, or several of them with commas
    between them (a list). `where`: the flag as messages name it."""
    text = text.strip()
    is_toml, value = _parse_toml(text)
    if is_toml:
        return value
    parts = split_commas(text)
    if len(parts) > 1:
        if not all(part.strip() for part in parts):
            raise SpecError(f"{where}: a value is missing between two commas")
        return [parse_value(part, where) for part in parts]
    if text[0] in "[{\"'" or any(ord(c) < 32 for c in text):
        raise SpecError(f"{where}: {show(text)} is not a TOML value")
    return text


def _parse_toml(text: str) -> tuple[bool, Value]:
    """Return whether the text is one value of TOML, and the value."""
    try:
        table = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return False, None
    value = table.get("x")
    # A text with a line break could hold further keys, and a date is no value of a spec
    return set(table) == {"x"} and isinstance(value, (str, int, float, list, dict)), value


def split_commas(text: str) -> list[str]:
    """Split the text at commas that are not inside brackets or quotes."""
    parts = []
    depth = 0
    quote = ""
    last = 0
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


def check_sets(sets: list[Flag], warn: list[str]) -> None:
    """Reject flags that exclude each other; warn of a value that a later flag replaces."""
    given: dict[tuple[str, ...], Value] = {}
    for path, value in _sort_sets(sets):
        for key, leaf in _list_leaves(tuple(path), value):
            where = f"--set {'.'.join(key)}"
            before = given.setdefault(key, leaf)
            if before != leaf:
                warn.append(
                    f"{where}={show(before)}: has no effect, because {where}={show(leaf)} replaces "
                    "it; for both, give one flag with a list"
                )
                given[key] = leaf
    for first, second in itertools.permutations(EXCLUSIVE, 2):
        for key in given:
            other = (*key[:-1], second)
            if key[-2:] == ("train", first) and other in given:
                raise SpecError(
                    f"--set {'.'.join(key)}={show(given[key])}: give {' or '.join(EXCLUSIVE)}, not "
                    f"both (--set {'.'.join(other)}={show(given[other])})"
                )


def _sort_sets(sets: list[Flag]) -> list[Flag]:
    """Put whole tables before their options, and else keep the order."""
    return sorted(sets, key=lambda flag: len(flag[0]))


def _list_leaves(path: tuple[str, ...], value: Value) -> list[tuple[tuple[str, ...], Value]]:
    """List the path and value of each option in the value, which may be a table of tables."""
    if not isinstance(value, dict):
        return [(path, value)]
    return [leaf for key, inner in value.items() for leaf in _list_leaves((*path, key), inner)]


def apply_sets(raw: Table, sets: list[Flag]) -> Table:
    """Lay the flags over the tidy spec: whole tables first, then options, in the order given."""
    for path, value in _sort_sets([each for flag in sets for each in _spell_rates(*flag)]):
        where = ".".join(path)
        if len(path) == 1:
            raw = lay_over(raw, {path[0]: value}, "--set")
        elif path[0] == "method":
            raw = {**raw, "method": _set_method(raw["method"], path[1:], value, where)}
        elif path[0] in ("data", "model", "train"):
            raw = {
                **raw,
                path[0]: [set_path(table, path[1:], value, where) for table in raw[path[0]]],
            }
        elif path[0] in ("defaults", "search"):
            raw = {
                **raw,
                path[0]: set_path(
                    need_table(raw.get(path[0], {}), path[0]), path[1:], value, where
                ),
            }
        else:
            raise SpecError(f"{where}: {path[0]} has no options; write {path[0]}={show(value)}")
    return raw


def _spell_rates(path: list[str], value: Value) -> list[Flag]:
    """Return the flags that set a learning rate and its schedule, which are two options, in place
    of one that sets what is written as `lr = { value = 0.1, schedule = "cosine" }`."""
    at = next((i for i in range(1, len(path)) if path[i - 1 : i + 1] in _RATES), None)
    if at is None:
        return [(path, value)]
    table, inside = path[:at], path[at + 1 :]
    if not inside:
        if not isinstance(value, dict):
            return [(path, value)]
        options = split_schedule({"lr": value}, ".".join(table))
        return [([*table, key], each) for key, each in options.items()]
    if inside == ["value"]:
        return [([*table, "lr"], value)]
    key = ["name"] if inside == ["schedule"] else inside
    return [([*table, "lr_schedule", *key], value)]


def _set_method(methods: list[Table], path: list[str], value: Value, where: str) -> list[Table]:
    """Set an option in the methods of the name or label that the path begins with."""
    name, rest = path[0], path[1:]
    if not rest:
        raise SpecError(
            f"{where}: write method.NAME.option=value" + suggest(name, list_names(methods))
        )
    if not any(has_name(table, name) for table in methods):
        raise SpecError(
            f"{where}: the spec has no method {name}" + suggest(name, list_names(methods))
        )
    return [
        set_path(table, rest, value, where) if has_name(table, name) else table for table in methods
    ]


def set_path(table: Table, path: list[str], value: Value, where: str) -> Table:
    """Copy the table with the value set at that path. A name on the way becomes a table with that
    name: `train.compress.keep=0.1` works where the spec has `compress = "topk"`."""
    key, rest = path[0], path[1:]
    if not rest:
        return lay_options(table, {key: value}) if key in EXCLUSIVE else {**table, key: value}
    inner = table.get(key, {})
    if isinstance(inner, str):
        inner = {"name": inner}
    return {**table, key: set_path(need_table(inner, where), rest, value, where)}


def choose_size(raw: Table, sets: list[Flag]) -> tuple[str, Table, list[Flag]]:
    """Return the chosen size, the table to lay over the spec for it, and the remaining flags."""
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
            raise SpecError(
                "size.full: full means the spec without a size; give the table another name"
            )
        need_table(table, f"size.{name}")
    if chosen != "full" and chosen not in sizes:
        raise SpecError(f'size = "{chosen}": unknown size' + suggest(chosen, [*sizes, "full"]))
    return chosen, sizes.get(chosen, {}), rest
