"""Options of the table `train` that a method cannot have: how they are told, and left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from cfljax.registry.options import Table, Value, show

Options = TypeVar("Options", bound=Any)


class _Asked(NamedTuple):
    """What a spec asks for by an option that it may leave out."""

    value: Value
    usual: Value


def _find(train: Any, name: str) -> _Asked | None:
    """Return the value of an option of `train` by its dotted name, and its default; None: it is at
    its default."""
    value = train
    usual: Value = None
    for part in name.split("."):
        usual = getattr(type(value), part, None)
        value = getattr(value, part, None)
        # The type counts: a participation of 1 is one client, of 1.0 all of them
        if value is None or (type(value) is type(usual) and value == usual):
            return None
    return _Asked(value, usual)


def tell(where: str, train: Any, reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each option that the spec gives and the method refuses.

    Args:
        where: The name of the method's table, for the message.
        train: The options of the table `train`.
        reasons: What must stay at its default, by dotted name, and why.
    """
    lines = []
    for name, why in reasons.items():
        asked = _find(train, name)
        if asked is None:
            continue
        plain = isinstance(asked.value, (str, int, float))
        shown = f" = {show(asked.value)}" if plain else ""
        fix = "leave it out for this method"
        if isinstance(asked.usual, (str, int, float)) and "." not in name:
            fix += f", with train = {{ {name} = {show(asked.usual)} }} in its table"
        lines.append(f"train.{name}{shown} with {where}: {why}; {fix}")
    return lines


def leave_out(train: Options, names: Iterable[str]) -> tuple[Options, Table]:
    """Return the options of `train` without those of these dotted names, and what they were.

    Args:
        train: The options of the table `train`.
        names: The options that a method refuses.
    """
    left: Table = {}
    for name in names:
        asked = _find(train, name)
        if asked is not None:
            left[f"train.{name}"] = asked.value
            # Without its name a table is nothing
            train = _reset(train, name.removesuffix(".name").split("."))
    return train, left


def _reset(options: Options, path: list[str]) -> Options:
    """Return the options with one of them at its default."""
    first, *rest = path
    value = _reset(getattr(options, first), rest) if rest else getattr(type(options), first, None)
    made: Options = dataclasses.replace(options, **{first: value})
    return made
