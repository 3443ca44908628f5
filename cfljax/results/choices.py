"""Which rows of a results folder match what `Results.filter` is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from cfljax.errors import SpecError, suggest
from cfljax.registry.options import Table, Value, show
from cfljax.results.frames import find_option, list_varying
from cfljax.store.records import STATUSES
from cfljax.store.rows import label_of

_FACTS = ("run", "method", "seed", "label", "status")
# The most values that a message lists
_MOST_LISTED = 20


def choose_rows(
    rows: Collection[Table], wanted: Mapping[str, object], where: str = "filter: "
) -> list[Table]:
    """Return the rows that match: in their order, or if methods are named, by the order of these.

    Args:
        rows: records with their labels and options.
        wanted: the name of a column -> its value, or several; a SpecError if no row has a value.
        where: what messages begin with."""
    varying = list_varying(rows)
    chosen = list(rows)
    for name, given in wanted.items():
        key = _find_column(name, varying, where)
        values = _list_values(given)
        known = [_list_names(row, key) for row in rows]
        for value in values:
            if not any(_equals(value, cell) for cells in known for cell in cells):
                _check_value(where, name, value, known)
        chosen = [row for row in chosen if _rank(row, key, values) < len(values)]
        if key == "method":
            chosen.sort(key=lambda row: _rank(row, "method", values))
    return chosen


def make_plan_row(row: Table) -> Table:
    """Return a row as a plan lists it, so that tables of chosen runs have their labels and
    options."""
    follows = row["config"].get("data", {}).get("seed") == "run"
    return {
        "label": label_of(row),
        "data_seed": "run" if follows else None,
        "units": [row["id"]],
        "varies": [row["varies"]],
    }


def _find_column(name: str, varying: Collection[str], where: str) -> str:
    """Return the fact or the dotted option of this name, or with this last word."""
    if name in _FACTS or name in varying:
        return name
    found = [each for each in varying if each.rpartition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    if found:
        full = f'**{{"{found[0]}": …}}'
        raise SpecError(f"{where}{name} is in {' and '.join(found)}; write one in full, {full}")
    raise SpecError(
        f"{where}{name} is no option that varies between these runs"
        f"{suggest(name, [*_FACTS, *varying])}"
    )


def _list_values(given: object) -> list[object]:
    """List the values that an argument gives: one, or several in a list, tuple, set, range or
    array."""
    if isinstance(given, np.ndarray):
        return list(given.ravel().tolist())
    return list(given) if isinstance(given, list | tuple | set | range) else [given]


def _list_names(row: Table, key: str) -> list[Value]:
    """List by what a row may be asked for: its value, and of a list or a table the text in frames.
    A method has its name and its label."""
    if key == "run":
        return [row["id"]]
    if key == "method":
        return [label_of(row), row["method"]]
    if key in ("seed", "status"):
        return [row[key]]
    value = find_option(row, key)
    return [value, show(value)] if isinstance(value, list | dict) else [value]


def _equals(one: object, other: object) -> bool:
    """Compare values as they are meant: True is no 1, and 1 is 1.0."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _rank(row: Table, key: str, values: list[object]) -> int:
    """Return the position of the first of the values that the row has; their number if it has
    none."""
    cells = _list_names(row, key)
    hits = (i for i, value in enumerate(values) if any(_equals(value, cell) for cell in cells))
    return next(hits, len(values))


def _check_value(where: str, name: str, value: object, known: list[list[Value]]) -> None:
    """Raise a SpecError about a value that no row has; a status need not occur."""
    named = (cell for cells in known for cell in cells if not isinstance(cell, list | dict))
    cells = list(dict.fromkeys(named))
    if name == "status":
        if value in STATUSES:
            return
        cells = list(STATUSES)
    if isinstance(value, str):
        near = suggest(value, [cell for cell in cells if isinstance(cell, str)])
    else:
        shown = [show(cell) for cell in cells if cell is not None]
        more = ", …" if len(shown) > _MOST_LISTED else ""
        near = f"; known: {', '.join(shown[:_MOST_LISTED])}{more}"
    raise SpecError(f"{where}{name} = {show(value)}: no run has it{near}")
