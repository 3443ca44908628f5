"""Which columns a table has."""

from __future__ import annotations

from collections.abc import Sequence

from cfljax.errors import SpecError, suggest
from cfljax.report.comparison import Column, Row, headline, list_columns


def columns_of(table: Sequence[Row]) -> list[Column]:
    """Return the columns that the table has."""
    first = headline(table)
    keys = table[0].cells if table else {}
    every = [column for column in list_columns(keys, asked=True) if column.key in keys]
    return [first if first is not None and c.key == first.key else c for c in every]


def select_columns(
    table: Sequence[Row], names: Sequence[str], where: str = "--columns"
) -> list[Row]:
    """Select columns by their headings, the first words of their headings, or their keys. `where`:
    what messages call the flag or the argument."""
    spellings = {
        column.key: (column.key, column.heading, column.heading.split()[0])
        for column in columns_of(table)
    }
    known = {name for each in spellings.values() for name in each}
    if wrong := next((name for name in names if name not in known), ""):
        every = [*columns_of(table), *(each for each in list_columns(asked=True) if each.ask)]
        near = suggest(wrong, [column.heading for column in every])
        raise SpecError(f"{where} {wrong}: there is no such column{near}")
    return [
        row._replace(
            cells={key: row.cells[key] for key, own in spellings.items() if {*names} & {*own}}
        )
        for row in table
    ]
