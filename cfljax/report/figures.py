"""Enters: ReportData. Leaves: PNG and SVG files of figures for papers, the same bytes every
time."""

from __future__ import annotations

import io
import math
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cfljax.report import profile_picture
from cfljax.report.comparison import headline_of
from cfljax.report.critical_difference import WIDTH, Picture, picture
from cfljax.report.curves import Band, Curves
from cfljax.report.figure_panels import COLOURS, PANELS
from cfljax.report.over_settings import compare_over_settings
from cfljax.report.page_data import PARTS_OF_SECONDS, finals_of, styles, timing
from cfljax.report.report_data import ReportData
from cfljax.report.tested import compute_mean_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-",
    (0, (4, 1.6)),
    (0, (1.2, 1.4)),
    (0, (6, 1.5, 1.2, 1.5)),
)
# (width, height) in inches
FIGURE_SIZE = (5.5, 3.3)
CHANGE_COLOUR = "#8a93a3"
"""The colour of the lines at changes of the data."""
BYTES_LABEL = "sent, MB"
SECONDS_LABEL = "seconds without compiling the rounds"
# The height of a line of the legend in inches
LEGEND_LINE_HEIGHT = 0.15
STYLE: dict[Any, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def render(
    data: ReportData, names: Sequence[str] = (), dpi: int = 200
) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, bytes) of the figures of these names, else all, without empty ones. `dpi`:
    dots per inch of PNG files."""
    import matplotlib

    # Without a user's matplotlibrc
    plain = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context(plain | STYLE), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        for name, draw in FIGURES.items():
            figure = draw(data) if not names or name in names else None
            if figure is None:
                continue
            for kind, metadata in (
                ("png", {"Software": None}),
                ("svg", {"Date": None, "Creator": None}),
            ):
                out = io.BytesIO()
                figure.savefig(out, format=kind, metadata=metadata, dpi=dpi)
                yield f"{name}.{kind}", out.getvalue()
                # Keeps the layout for the second file
                figure.set_layout_engine("none")


def _axes(height: float, own: Axes | None = None) -> tuple[Figure, Axes]:
    """Return a new figure of this height with its axes; or the axes of a user, with their
    figure."""
    from matplotlib.figure import Figure

    if own is not None:
        return cast("Figure", own.figure), own
    figure = Figure(figsize=(FIGURE_SIZE[0], height))
    return figure, figure.subplots()


# A function that draws a figure, or None where there is nothing to draw
Draw = Callable[[ReportData], "Figure | None"]
# f64[E] x and the band over it; None where there is nothing to draw
Line = tuple[np.ndarray, Band] | None


def draw_lines(
    data: ReportData,
    pick: Callable[[Curves], Line],
    x: str,
    y: str,
    percent: bool = False,
    ends: bool = False,
    stops: bool = False,
    own: Axes | None = None,
) -> Figure | None:
    """Draw the line of `pick` for each configuration. `ends`: mark each last point; `stops`: where
    runs were ended; `own`: draw there, instead of in a figure with the legend beside it."""
    height = max(FIGURE_SIZE[1], 0.2 + LEGEND_LINE_HEIGHT * len(data.drawn))
    figure, axes = _axes(height, own)
    drawn = 0
    factor = 100 if percent else 1
    for configuration, curves, (shade, dash) in zip(
        data.drawn, data.curves, styles(data), strict=True
    ):
        line = pick(curves)
        if line is None or not np.isfinite(line[1].mean).any():
            continue
        at, band = line
        mean = factor * band.mean
        std = factor * np.nan_to_num(band.std)
        axes.plot(
            at,
            mean,
            color=COLOURS[shade],
            linestyle=DASHES[dash],
            label=_shorten_name(configuration.legend),
        )
        drawn += 1
        axes.fill_between(at, mean - std, mean + std, color=COLOURS[shade], alpha=0.14, linewidth=0)
        last = np.flatnonzero(np.isfinite(mean))[-1]
        if ends or np.isfinite(mean).sum() == 1:
            axes.plot(at[last], mean[last], "o", color=COLOURS[shade], markersize=3.5)
        if stops and curves.stopped:
            height = np.interp(curves.stopped, at, mean)
            axes.plot(
                curves.stopped, height, "|", color=COLOURS[shade], markersize=7, markeredgewidth=1
            )
    if not drawn:
        return None
    if stops and any(each.stopped for each in data.curves):
        x = f"{x}  (|: a run stopped, and keeps its last value)"
    axes.set(xlabel=x, ylabel=y)
    if own is not None:
        axes.legend()
    else:
        figure.legend(loc="outside right upper")
    return figure


def _shorten_name(text: str) -> str:
    """Shorten a name for a legend, without mathematics, and without a leading underscore, which
    would hide it."""
    short = (text if len(text) <= 44 else text[:43] + "…").replace("$", r"\$")
    return f"\u200b{short}" if short.startswith("_") else short


def _draw_rounds(pick: Callable[[Curves], Band | None], label: str, percent: bool = False) -> Draw:

    def line(each: Curves) -> Line:
        band = pick(each)
        return None if band is None else (band.round, band)

    def draw(data: ReportData) -> Figure | None:
        figure = draw_lines(data, line, "round", label, percent, stops=True)
        if figure is not None:
            mark_changes(data, figure.axes[0])
        return figure

    return draw


def mark_changes(data: ReportData, axes: Axes) -> None:
    """Draw a line at each round in which the data change."""
    for at in sorted({at for each in data.curves for at in each.changes}):
        axes.axvline(at, color=CHANGE_COLOUR, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)


def _draw_clients(data: ReportData) -> Figure | None:
    """Draw the accuracies of the clients at the end, in ascending order."""

    def pick(each: Curves) -> Line:
        return (100 * each.clients.round, each.clients) if len(each.clients.round) else None

    figure = draw_lines(data, pick, "clients from worst to best, %", "accuracy, %", True)
    if figure is not None:
        figure.axes[0].axvspan(0, 10, color="#eef4fb", zorder=0)
    return figure


def _draw_newcomers(data: ReportData) -> Figure | None:
    """Draw the accuracy of new clients over their local steps."""
    from matplotlib.ticker import MaxNLocator

    def line(each: Curves) -> Line:
        return (each.newcomers.round, each.newcomers) if len(each.newcomers.round) else None

    figure = draw_lines(data, line, "local steps of a new client", "accuracy, %", True, ends=True)
    if figure is not None:
        (axes,) = figure.axes
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        # A point where there is a number
        for each in axes.lines:
            each.set(marker="o", markersize=3.5)
    return figure


def over_bytes(each: Curves, column: str) -> Line:
    """Return a column over the megabytes that clients have sent and received."""
    band = each.history.get(column)
    sent = each.history.get("bytes")
    return None if band is None or sent is None else _skip_round_0(sent.mean / 1e6, band)


def _clock(each: Curves) -> Line:
    band = each.history.get("accuracy")
    passed = each.history.get("clock_s")
    return None if band is None or passed is None else _skip_round_0(passed.mean, band)


def over_seconds(each: Curves, column: str) -> Line:
    """Return a column over the seconds of setting up, training and evaluating."""
    band = each.history.get(column)
    spent = each.seconds
    if band is None or not math.isfinite(spent) or not len(band.round) or band.round[-1] <= 0:
        return None
    return _skip_round_0(each.setup + band.round / band.round[-1] * spent, band)


def _skip_round_0(spent: np.ndarray, band: Band) -> Line:
    """Return what was spent and the band, without round 0: what a method does before it counts in
    the first round."""
    return spent[1:], Band(*(values[1:] for values in band))


def _draw_labels(axes: Axes, data: ReportData, label: str) -> None:
    """Name a row for each configuration, from the top. After the last mark is drawn: rows without a
    mark are then kept in view."""
    axes.set_yticks(range(len(data.drawn)), [_shorten_name(c.legend) for c in data.drawn])
    axes.invert_yaxis()
    axes.set_xlabel(label)


def draw_methods(data: ReportData, own: Axes | None = None) -> Figure | None:
    """Draw the headline accuracy of each configuration: a circle for each seed, their mean and
    deviation. `own`: as for `draw_lines`."""
    finals = next(iter(finals_of(data.drawn).values()))
    if not any(each["seeds"] for each in finals):
        return None
    figure, axes = _axes(0.9 + 0.24 * len(data.drawn), own)
    for i, (each, (shade, _)) in enumerate(zip(finals, styles(data), strict=True)):
        if not each["seeds"]:
            continue
        seeds = 100 * np.array(each["seeds"], float)
        at = np.full(len(seeds), i)
        axes.plot(
            seeds, at, "o", color=COLOURS[shade], markersize=3.5, markerfacecolor="none", alpha=0.7
        )
        mean = 100 * (each["mean"] or 0)
        std = 100 * (each["std"] or 0)
        axes.errorbar(
            mean, i, xerr=std, color=COLOURS[shade], marker="|", markersize=9, markeredgewidth=2
        )
    _draw_labels(axes, data, f"accuracy, {headline_of(data.drawn).heading}, %")
    return figure


def _stack(
    data: ReportData,
    rows: Sequence[Sequence[float]],
    label: str,
    colours: Sequence[int],
    names: Sequence[str] = (),
) -> Figure | None:
    """Draw a bar for each configuration, of parts in these colours; with `names` a legend of the
    parts."""
    if not any(map(len, rows)):
        return None
    figure, axes = _axes(height=0.9 + 0.24 * len(data.drawn))
    for i, row in enumerate(rows):
        ends = np.cumsum([0.0, *row])
        for k, spent in enumerate(row):
            named = names[k] if names and not i else None
            axes.barh(
                i,
                spent,
                left=ends[k],
                height=0.62,
                color=COLOURS[colours[k % len(colours)]],
                label=named,
            )
    _draw_labels(axes, data, label)
    if names:
        figure.legend(loc="outside right upper")
    return figure


def _time(data: ReportData) -> Figure | None:
    """Draw the seconds of a run by their parts."""
    spent = [
        [timing(configuration, part) or 0.0 for part in PARTS_OF_SECONDS]
        for configuration in data.drawn
    ]
    return _stack(
        data, spent, "seconds per run", (2, 7, 0, 4), ("set up", "compile", "train", "evaluate")
    )


def _waited(data: ReportData) -> Figure | None:
    waited = [curves.waited.tolist() for curves in data.curves]
    return _stack(data, waited, "simulated seconds of waiting, by cluster", range(len(COLOURS)))


def _draw_ranks(data: ReportData) -> Figure | None:
    """Draw the critical differences of mean ranks."""
    over = compute_mean_ranks(data.table)
    return None if over is None else _draw_picture(picture(over))


def _draw_profiles(data: ReportData) -> Figure | None:
    """Draw the performance profiles."""
    over = compare_over_settings(data.table)
    return None if over is None else _draw_picture(profile_picture.picture(over))


def _draw_picture(drawn: Picture) -> Figure:
    figure, axes = _axes(height=drawn.height * FIGURE_SIZE[0] / WIDTH)
    for stroke in drawn.strokes:
        axes.plot(
            [stroke.x1, stroke.x2],
            [stroke.y1, stroke.y2],
            color="black" if stroke.colour is None else COLOURS[stroke.colour],
            linewidth=0.8 * stroke.width,
            solid_capstyle="butt",
        )
    sides = {"start": "left", "middle": "center", "end": "right"}
    for word in drawn.words:
        axes.text(
            word.x, word.y, word.text.replace("$", r"\$"), ha=sides[word.anchor], fontsize=7.5
        )
    axes.set(xlim=(0, WIDTH), ylim=(drawn.height, 0))
    axes.set_axis_off()
    return figure


FIGURES: dict[str, Draw] = {
    "accuracy": _draw_rounds(
        lambda each: each.history.get("accuracy"), "accuracy, %", percent=True
    ),
    "worst_tenth": _draw_rounds(
        lambda each: each.history.get("accuracy_worst10"),
        "accuracy of the worst tenth, %",
        percent=True,
    ),
    "loss": _draw_rounds(lambda each: each.history.get("loss"), "test loss"),
    "ari": _draw_rounds(lambda each: each.history.get("ari"), "adjusted Rand index"),
    "methods": draw_methods,
    "clients": _draw_clients,
    "newcomers": _draw_newcomers,
    "bytes": lambda data: draw_lines(
        data, lambda each: over_bytes(each, "accuracy"), BYTES_LABEL, "accuracy, %", True, ends=True
    ),
    "clock": lambda data: draw_lines(
        data, _clock, "simulated seconds", "accuracy, %", True, ends=True
    ),
    "waited": _waited,
    "seconds": lambda data: draw_lines(
        data,
        lambda each: over_seconds(each, "accuracy"),
        SECONDS_LABEL,
        "accuracy, %",
        True,
        ends=True,
    ),
    "clusters": _draw_rounds(lambda each: each.clusters, "clusters"),
    **PANELS,
    "time": _time,
    "critical_difference": _draw_ranks,
    "performance_profile": _draw_profiles,
}
