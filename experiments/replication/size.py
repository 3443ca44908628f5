"""Enters: a results folder. Leaves: the flags that its sweep was started with, and whether they
make its runs smaller than the spec, which is as large as the paper's."""

from __future__ import annotations

import re
import tomllib

from cfljax.config.flags import parse_set
from cfljax.errors import SpecError
from cfljax.registry.options import Table, Value
from cfljax.results.result import Results

SIZES = {
    "train": ("rounds", "epochs", "steps", "participation"),
    "data": ("clients", "samples_per_client", "slices"),
    "model": ("hidden", "channels", "dense", "width", "layers"),
}
"""Table of a spec -> its options that say how large a run is."""


def flags_of(results: Results) -> list[str]:
    """Return the `--set` flags that the sweep of a folder was started with."""
    return list(
        dict.fromkeys(re.findall(r"^# --set (.*)$", results.store.read_spec() or "", re.MULTILINE))
    )


def below_size(results: Results, rounds: bool = True) -> bool:
    """Return whether flags make the runs smaller than the spec: by another size, or by fewer
    rounds, epochs, steps, participants, clients or samples, or a smaller network of the same name.
    Rounds of which the spec says nothing count as fewer. `rounds`: false to leave them out, as for
    the rounds to a target that was reached."""
    flags = flags_of(results)
    if any(re.match(r"size=(?!full$)", flag) for flag in flags):
        return True
    try:
        spec = tomllib.loads(results.store.read_spec() or "")
    except tomllib.TOMLDecodeError:
        spec = {}
    tables = [table for flag in flags for table in _list_tables(flag)]
    return any(
        _is_smaller(name, {k: v for k, v in given.items() if rounds or k != "rounds"}, spec)
        for name, given in tables
    )


def _list_tables(flag: str) -> list[tuple[str, Table]]:
    """Return the tables that a flag lays over the spec's: (`train`, {rounds: 9}) of
    `train.rounds=9`."""
    try:
        path, value = parse_set(flag)
    except SpecError:
        return []
    if path[0] not in SIZES or len(path) > 2:
        return []
    given = [{path[1]: value}] if len(path) == 2 else value if isinstance(value, list) else [value]
    return [(path[0], table) for table in given if isinstance(table, dict)]


def _is_smaller(name: str, given: Table, spec: Table) -> bool:
    """Return whether a table has less than all tables of that name in the spec."""
    known = spec.get(name, [])
    tables = [
        table
        for table in (known if isinstance(known, list) else [known])
        if isinstance(table, dict)
    ]
    if name == "model":
        tables = [
            table for table in tables if table.get("name") == given.get("name", table.get("name"))
        ]
    return any(
        _is_less(value, [table.get(key) for table in tables], key)
        for key, value in given.items()
        if key in SIZES[name]
    )


def _is_less(value: Value, known: list[Value], key: str) -> bool:
    """Return whether a size, or each of several, is less than all that the spec has."""
    most = [
        size for old in known if old is not None for size in [_sum_amount(old)] if size is not None
    ]
    amount = _sum_amount(value)
    if amount is None:
        return False
    alike = [size for size in most if isinstance(size, float) == isinstance(amount, float)]
    return amount < max(alike) if alike else key in ("rounds", "epochs", "steps") and not most


def _sum_amount(value: Value) -> float | int | None:
    """Return a number, or the sum of a list of numbers; None for anything else."""
    numbers = value if isinstance(value, list) else [value]
    if not all(
        isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers
    ):
        return None
    return sum(numbers) if numbers else None
