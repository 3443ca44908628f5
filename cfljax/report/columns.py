"""Which columns a table has."""

from __future__ import annotations

from collections.abc import Sequence

from cfljax.errors import SpecError, suggest
from cfljax.report.comparison import Column, Row, headline, list_columns, list_scores


def columns_of(table: Sequence[Row]) -> list[Column]:
    """Return the columns that the table has."""
    first = headline(table)
    keys = table[0].cells if table else {}
    scores = list_scores(row.configuration for row in table)
    every = [each for each in list_columns(keys, asked=True, scores=scores) if each.key in keys]
    return [first if first is not None and c.key == first.key else c for c in every]


def select_columns(
    table: Sequence[Row], names: Sequence[str], where: str = "--columns"
) -> list[Row]:
    """Select columns by their headings, by their keys, or, if no column has this heading or key, by
    the first words of headings. `where`: what messages call the flag or the argument."""
    columns = columns_of(table)
    chosen = set()
    for name in names:
        found = [each.key for each in columns if name in (each.key, each.heading)]
        found = found or [each.key for each in columns if name == each.heading.split()[0]]
        if not found:
            every = [*columns, *(each for each in list_columns(asked=True) if each.ask)]
            near = suggest(name, [column.heading for column in every])
            raise SpecError(f"{where} {name}: there is no such column{near}")
        chosen.update(found)
    return [
        row._replace(cells={key: cell for key, cell in row.cells.items() if key in chosen})
        for row in table
    ]
