"""From what a spec writes for an option (a value, a list, `0:10`, `log(a, b, n)`, a range) to the
list of values that it takes."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import typing
import zlib
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError, suggest
from cfljax.registry.options import (
    Hint,
    Meta,
    Table,
    Value,
    check_value,
    list_alternatives,
    read_hints,
    show,
)

MAX_RUNS = 1_000_000
_RANGE = re.compile(r"\s*(-?\d{1,18})\s*:\s*(-?\d{1,18})\s*(?::\s*(-?\d{1,18})\s*)?")
_SPACED = re.compile(r"\s*(log|lin)\s*\(([^()]*)\)\s*")


class Range(NamedTuple):
    """A range from which the value of an option is drawn at random."""

    low: float
    high: float
    log: bool
    integer: bool

    def draw(self, key: str, search_seed: int, sample: int) -> float | int:
        """Draw the value of the option `key` in that sample of the search. Nothing else in the spec
        changes the draw."""
        share = np.random.default_rng([search_seed, zlib.crc32(key.encode()), sample]).random()
        high = self.high + 1 if self.integer else self.high
        if self.log:
            drawn = math.exp(math.log(self.low) + share * (math.log(high) - math.log(self.low)))
        else:
            drawn = self.low + share * (high - self.low)
        if self.integer:
            return min(int(math.floor(drawn)), int(self.high))
        return min(max(float(f"{drawn:.6g}"), self.low), self.high)


class Field(NamedTuple):
    """What an option accepts, and its default."""

    hint: Hint
    meta: Meta
    default: Value

    @property
    def kinds(self) -> tuple[Hint, ...]:
        """The types that its value may have."""
        return list_alternatives(self.hint)

    @property
    def depth(self) -> int:
        """How deep lists are nested in one value: 0 for a number, 1 for a list of numbers."""
        return max(_depth_of_hint(kind) for kind in self.kinds)

    @property
    def table(self) -> bool:
        """Whether a value may be a table."""
        return any(kind is dict or typing.get_origin(kind) is dict for kind in self.kinds)


@functools.cache
def list_fields(cls: type) -> dict[str, Field]:
    """Return the options of an Options class by name."""
    hints = read_hints(cls)
    missing = dataclasses.MISSING
    return {
        f.name: Field(hints[f.name], f.metadata, None if f.default is missing else f.default)
        for f in dataclasses.fields(cls)
        if f.init
    }


def to_list(value: Value, where: str) -> list[Value]:
    """Return the items of a list; any other value counts as a list of one. Raises a SpecError for
    an empty list."""
    if value == []:
        raise SpecError(f"{where} = []: an empty list leaves nothing to run")
    return value if isinstance(value, list) else [value]


def expand_axis(value: Value, field: Field, where: str) -> list[Value]:
    """List the values to run: several for a list or a range, else one. A range to draw from at
    random is one `Range`."""
    if not isinstance(value, list) or _count_depth(value) <= field.depth:
        return expand_entry(value, field, where)
    found: list[Value] = []
    for item in to_list(value, where):
        values = expand_entry(item, field, where)
        if isinstance(values[0], Range):
            raise SpecError(f"{where} = {show(value)}: a random range cannot be in a list")
        found += values
        if len(found) > MAX_RUNS:
            raise SpecError(
                f"{where}: has more than {MAX_RUNS:,} values, which is the most that a sweep "
                "may have"
            )
    return found


def expand_entry(value: Value, field: Field, where: str) -> list[Value]:
    """List the values that one entry of an axis stands for: the values of a range, else the entry
    itself."""
    if isinstance(value, str):
        if int in field.kinds and (match := _RANGE.fullmatch(value)):
            found = expand_range(match, value, where)
            ends = [check_value(v, field.hint, field.meta, where) for v in (found[0], found[-1])]
            if all(type(end) is int for end in ends):
                # All values between two integers within the bounds are within them, too
                return list(found)
            return [check_value(v, field.hint, field.meta, where) for v in found]
        if {int, float} & set(field.kinds) and (match := _SPACED.fullmatch(value)):
            return expand_spaced(match[1], match[2], field, f'{where} = "{value}"', where)
    if isinstance(value, dict):
        if not field.table and ({"low", "high"} & set(value)):
            return [_parse_random(value, field, where)]
        if field.table:
            return _expand_table(value, where, field.meta.get("lists") or ())
    return [check_value(value, field.hint, field.meta, where)]


def expand_range(match: re.Match[str], text: str, where: str) -> range:
    """Expand `start:stop` or `start:stop:step`, the stop not included."""
    start = int(match[1])
    stop = int(match[2])
    step = int(match[3] or 1)
    if step == 0:
        raise SpecError(f'{where} = "{text}": the step is 0')
    found = range(start, stop, step)
    if start == stop or (stop > start) != (step > 0):
        raise SpecError(
            f'{where} = "{text}": an empty range (start:stop:step, the stop is not included)'
        )
    if (abs(stop - start) - 1) // abs(step) + 1 > MAX_RUNS:
        raise SpecError(
            f'{where} = "{text}": has more than {MAX_RUNS:,} values, which is the most that '
            "a sweep may have"
        )
    return found


def parse_range(text: str, where: str) -> list[int] | None:
    """List the integers of the range that the text writes; None if it is not a range."""
    match = _RANGE.fullmatch(text)
    return list(expand_range(match, text, where)) if match else None


def expand_spaced(kind: str, inside: str, field: Field, shown: str, where: str) -> list[Value]:
    """Expand `lin(a, b, n)` and `log(a, b, n)` to n values from a to b; without n, a random
    range."""
    try:
        numbers = [float(part) for part in inside.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or not all(math.isfinite(n) for n in numbers):
        raise SpecError(
            f"{shown}: write {kind}(from, to, number of values), or {kind}(from, to) for a "
            "random search"
        )
    low, high = numbers[:2]
    if kind == "log" and min(low, high) <= 0:
        raise SpecError(f"{shown}: a logarithmic range needs numbers above 0")
    if len(numbers) == 2:
        return [_make_range(low, high, kind == "log", field, shown, where)]
    count = numbers[2]
    if count != int(count) or not 1 <= count <= MAX_RUNS:
        raise SpecError(f"{shown}: the number of values must be an integer from 1 to {MAX_RUNS:,}")
    if int(count) == 1:
        steps = np.array([low])
    else:
        # Numbers that overflow float64 become infinite, which the error below reports
        with np.errstate(all="ignore"):
            steps = (
                np.geomspace(low, high, int(count))
                if kind == "log"
                else np.linspace(low, high, int(count))
            )
    if not np.isfinite(steps).all():
        raise SpecError(f"{shown}: too wide for a float")
    return [check_value(float(f"{v:.12g}"), field.hint, field.meta, where) for v in steps]


def _parse_random(table: Table, field: Field, where: str) -> Range:
    """Read a table with low, high and log."""
    shown = f"{where} = {show(table)}"
    for key in table:
        if key not in ("low", "high", "log"):
            raise SpecError(
                f"{where}.{key}: a random range has low, high and log"
                + suggest(key, ("low", "high", "log"))
            )
    low = table.get("low")
    high = table.get("high")
    log = table.get("log", False)
    number = (int, float)
    if (
        not isinstance(low, number)
        or not isinstance(high, number)
        or isinstance(low, bool)
        or isinstance(high, bool)
    ):
        raise SpecError(f"{shown}: a random range needs low and high, both numbers")
    if not isinstance(log, bool):
        raise SpecError(f"{shown}: log is true or false")
    return _make_range(low, high, log, field, shown, where)


def _make_range(low: float, high: float, log: bool, field: Field, shown: str, where: str) -> Range:
    """Check the bounds of a random range for an option. `shown`: the option with its value in
    messages."""
    if not {int, float} & set(field.kinds):
        raise SpecError(f"{shown}: only numbers can be drawn at random")
    if not low < high or not math.isfinite(high - low):
        raise SpecError(f"{shown}: low must be less than high, and both finite")
    if log and low <= 0:
        raise SpecError(f"{shown}: a logarithmic range needs numbers above 0")
    integer = float not in field.kinds or (
        int in field.kinds and isinstance(low, int) and isinstance(high, int)
    )
    for bound in (low, high):
        if integer and bound != int(bound):
            raise SpecError(f"{shown}: the bounds of an integer are integers")
        check_value(int(bound) if integer else float(bound), field.hint, field.meta, where)
    return Range(low, high, log, integer)


def _expand_table(table: Table, where: str, lists: tuple[str, ...]) -> list[Table]:
    """Expand an option's table with lists to all combinations; a list of numbers is itself the
    value of the keys `lists`."""
    found: list[Table] = [{}]
    for key, value in table.items():
        values = (
            [value]
            if key in lists and _count_depth(value) == 1
            else to_list(value, f"{where}.{key}")
        )
        if len(found) * len(values) > MAX_RUNS:
            raise SpecError(
                f"{where}: has more than {MAX_RUNS:,} values, which is the most that a sweep "
                "may have"
            )
        found = [{**table, key: v} for table in found for v in values]
    return found


def _count_depth(value: Value) -> int:
    return 1 + max((_count_depth(v) for v in value), default=0) if isinstance(value, list) else 0


def _depth_of_hint(kind: Hint) -> int:
    if typing.get_origin(kind) is not tuple:
        return 0
    return 1 + max(
        (_depth_of_hint(k) for k in typing.get_args(kind) if k is not Ellipsis), default=0
    )
