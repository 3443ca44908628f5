"""The page of a sweep that is being computed: how far it is, and what it still waits for. There is
no test, rank or sentence for a paper before its end, as what has come first is no fair sample."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from cfljax.registry.options import Table
from cfljax.report.comparison import Row
from cfljax.report.configurations import Collected, Planned, list_planned
from cfljax.report.page_data import escape_html
from cfljax.report.report_data import ReportData


class Live(NamedTuple):
    """How far a sweep is."""

    planned: list[Planned]
    # Labels of the methods that are being computed
    running: frozenset[str]
    # How many runs have ended, in words, and what the time left is
    state: str
    # The part of the sweep that is done, between 0 and 1
    share: float
    # Seconds since 1970
    written: float


def start_live(sweep: Table, collected: Collected) -> Live:
    """Return how far the sweep is before this start has told of any progress."""
    ended = len(collected.units)
    runs = max(collected.planned, 1)
    return Live(
        list_planned(sweep), frozenset(), f"{ended} of {runs} runs", ended / runs, time.time()
    )


def without_ranks(data: ReportData) -> ReportData:
    """Return the data without the marks of what is best, and without tests."""
    return data._replace(
        table=[
            row._replace(
                cells={
                    key: cell._replace(best=False, p=None, behind=None, p_raw=None)
                    for key, cell in row.cells.items()
                }
            )
            for row in data.table
        ]
    )


def write_bar(live: Live) -> str:
    """Write how far it is as a bar, with the time at which that was so."""
    percent = f"{100 * live.share:.0f} %"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(live.written))
    return (
        f'<div id="live"><progress max="1" value="{live.share:.4f}">{percent}</progress>'
        f"<p><b>{percent}</b> · {escape_html(live.state)} · as of "
        f'<time data-written="{live.written:.0f}">{when}</time></p>'
        "<p>Tests, ranks and the table's files are made when all runs have ended.</p></div>"
    )


def count_planned(live: Live, row: Row) -> int:
    """Return the number of runs that are planned for a row of the table."""
    each = row.configuration
    own = {unit.id for unit in each.units}
    return max(
        (len(p.units) for p in live.planned if p.label == each.label and own & p.units),
        default=len(own),
    )


def list_waiting(live: Live, table: Sequence[Row]) -> list[tuple[Planned, str]]:
    """List the planned rows that the table does not have yet, each with what it does: `running` or
    `waiting`."""
    begun = {(row.configuration.label, u.id) for row in table for u in row.configuration.units}
    return [
        (planned, "running" if planned.label in live.running else "waiting")
        for planned in live.planned
        if not any((planned.label, unit) in begun for unit in planned.units)
    ]
