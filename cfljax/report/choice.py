"""Enters: results. Leaves: the best configuration on each data set, as the comparison table marks
it."""

from __future__ import annotations

from cfljax.errors import SpecError, StoreError
from cfljax.report.columns import columns_of
from cfljax.report.comparison import MAXIMUM, Column, Row, headline
from cfljax.report.configurations import Configuration
from cfljax.report.report_data import collect, make_table
from cfljax.results.result import Results


def list_best(results: Results, by: str | None = None) -> list[Configuration]:
    """List the configurations with the best mean on each data set, in the order of the table.
    Several that have the same mean are all listed. `by`: a column of the table, by its heading, the
    first word of it, or its key; None: the one that methods are compared by."""
    table = make_table(collect([results]), (by or "").endswith(MAXIMUM), [by] if by else [], "by")
    column = headline(table) if by is None else columns_of(table)[0]
    if column is not None and not column.better:
        raise SpecError(
            f"by {by}: tables mark no best of it; sort results.table() by {column.key}_mean"
        )
    blocks: dict[str, list[Row]] = {}
    for row in table if column is not None else []:
        blocks.setdefault(row.configuration.block, []).append(row)
    best = [row.configuration for block in blocks.values() for row in _find_best(block, column)]
    if not best:
        raise StoreError(
            f"{results.store.folder}: no method has all of its {len(results)} runs done, so that "
            'none is the best; results.filter(status="done") compares the runs that are'
        )
    return best


def _find_best(block: list[Row], column: Column | None) -> list[Row]:
    """Return the rows of a block that are marked as the best. A row that is alone has no mark, and
    is the best if it lost no run."""
    assert column is not None
    marked = [row for row in block if row.cells[column.key].best]
    whole = [row for row in block if row.cells[column.key].n and not row.configuration.lost]
    return marked or (whole if len(whole) == 1 else [])
