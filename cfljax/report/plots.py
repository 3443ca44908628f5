"""Enters: results. Leaves: a figure of the report as a matplotlib figure, for notebooks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from cfljax.errors import SpecError, StoreError, suggest
from cfljax.report.comparison import headline_of
from cfljax.report.curves import Curves
from cfljax.report.figure_panels import draw_assignment
from cfljax.report.figures import (
    BYTES_LABEL,
    SECONDS_LABEL,
    STYLE,
    Line,
    draw_lines,
    draw_methods,
    mark_changes,
    over_bytes,
    over_seconds,
)
from cfljax.report.quantities import describe_history
from cfljax.report.report_data import ReportData, describe_folders, read
from cfljax.results.result import Results
from cfljax.store import DamagedWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("accuracy", "assignment", "methods")
X_LABELS = {"round": "round", "bytes": BYTES_LABEL, "seconds": SECONDS_LABEL}
"""What curves may be drawn over -> the label of that axis."""
# How much larger figures are on a screen than in a paper, letters included
_LARGER = 1.25


def plot(results: Results, column: str, axes: Axes | None, x: str, kind: str) -> Figure:
    """Draw a figure of the report; `Results.plot` says what the arguments are."""
    _check_arguments(column, axes, x, kind)
    data = read([results], results.target)
    for problem in data.problems:
        if problem not in describe_folders(data.collected):
            warnings.warn(problem, DamagedWarning, stacklevel=3)
    style = {}
    if axes is None:
        style = STYLE | {
            name: _LARGER * size for name, size in STYLE.items() if name.endswith("size")
        }
    with mpl.rc_context(style):
        if kind == "assignment":
            figure = draw_assignment(data, own=axes)
        elif kind == "methods":
            figure = draw_methods(data, own=axes)
        else:
            figure = _draw_column(data, column, x, axes)
        if figure is None:
            what = column if kind == "accuracy" else kind
            raise StoreError(
                f"{results.store.folder}: no run has something to draw for {what} (of the runs: "
                f"{len(results)})"
            )
        if axes is None:
            width, height = figure.get_size_inches()
            figure.set_size_inches(_LARGER * width, _LARGER * height)
    return figure


def _check_arguments(column: str, axes: object, x: str, kind: str) -> None:
    """Reject an argument that is wrong, or that the kind of figure does not use."""
    if kind not in KINDS:
        raise SpecError(f'kind = "{kind}": there is no such figure{suggest(kind, KINDS)}')
    if x not in X_LABELS:
        raise SpecError(f'x = "{x}": curves cannot be drawn over that{suggest(x, X_LABELS)}')
    if kind != "accuracy" and (column, x) != ("accuracy", "round"):
        given = f'x = "{x}"' if x != "round" else f'column = "{column}"'
        raise SpecError(f'{given}: is for curves; leave it out with kind = "{kind}"')
    if axes is not None and not isinstance(axes, Axes):
        raise SpecError(
            f"ax: must be one matplotlib axes, not {type(axes).__name__}; of several give one, as "
            "in ax=axes[0]"
        )


def _draw_column(data: ReportData, column: str, x: str, axes: Axes | None) -> Figure | None:
    """Draw a column of the history over rounds, megabytes or seconds. Values stay as they are in
    the history; shares are written in per cent."""
    known = {name for each in data.curves for name in each.history}
    if column not in known:
        column = column.replace("accuracy", headline_of(data.drawn).curve)
    if known and column not in known:
        raise StoreError(f"{column}: there is no such column{suggest(column, known)}")

    def pick(each: Curves) -> Line:
        if x == "bytes":
            return over_bytes(each, column)
        if x == "seconds":
            return over_seconds(each, column)
        band = each.history.get(column)
        return None if band is None else (band.round, band)

    quantity = describe_history(column, [each.score for each in data.curves])
    share = quantity.unit == "share"
    label = f"{quantity.words}, %" if share else quantity.words
    by_round = x == "round"
    figure = draw_lines(data, pick, X_LABELS[x], label, ends=not by_round, stops=by_round, own=axes)
    if figure is None:
        return None
    drawn = axes or figure.axes[0]
    if share:
        drawn.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
    if by_round:
        mark_changes(data, drawn)
    return figure
