"""Enters: ReportData. Leaves: PNG, SVG and PDF files of figures for papers, the same bytes every
time."""

from __future__ import annotations

import io
import math
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from cfljax.report import profile_picture
from cfljax.report.comparison import headline_of
from cfljax.report.critical_difference import PIXELS_PER_INCH, WIDTH, Picture, picture
from cfljax.report.curves import Band, Curves
from cfljax.report.figure_panels import PANELS
from cfljax.report.over_settings import compare_over_settings
from cfljax.report.page_data import PARTS_OF_SECONDS, finals_of, timing
from cfljax.report.report_data import ReportData
from cfljax.report.styles import CLUSTER_COLOURS, COLOURS, choose_styles
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
MARKERS = "os^DvPX*"
# A curve with more points has about this many markers
FEW_MARKERS = 6
# In inches
FIGURE_WIDTH = 5.5
# Height by width of the axes of curves
CURVES_RATIO = 0.6
# A narrower figure has its legend below, and shorter names
MIN_WIDTH_FOR_LEGEND = 4.6
CHANGE_COLOUR = "#8a93a3"
"""The colour of the lines at changes of the data."""
BYTES_LABEL = "sent, MB"
SECONDS_LABEL = "seconds without compiling the rounds"
# Of a legend, in inches: the height of a line, the width of a letter, and of what is beside a name
LEGEND_LINE_HEIGHT = 0.15
LETTER_WIDTH = 0.058
KEY_WIDTH = 0.42
# Of the label of an axis
LABEL_LETTER_WIDTH = 0.064
# The most letters of names, in figures of the usual width and in narrow ones
NAME_LENGTHS = (44, 26)
STYLE: dict[Any, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
# The same numbers give the same bytes: files have no date
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def render(
    data: ReportData,
    names: Sequence[str] = (),
    dpi: int = 200,
    width: float | None = None,
    pdf: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, bytes) of the figures of these names, else all, without empty ones.

    Args:
      data: What they show.
      names: Keys of FIGURES.
      dpi: Dots per inch of PNG files.
      width: In inches; None: what each figure needs.
      pdf: Whether each is a PDF file, too."""
    import matplotlib

    # Without a user's matplotlibrc
    plain = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context(plain | STYLE), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        for name, draw in FIGURES.items():
            figure = draw(data, width) if not names or name in names else None
            if figure is None:
                continue
            for kind in ("png", "svg", "pdf") if pdf else ("png", "svg"):
                out = io.BytesIO()
                figure.savefig(out, format=kind, metadata=METADATA[kind], dpi=dpi)
                yield f"{name}.{kind}", out.getvalue()
                # Keeps the layout for the other files
                figure.set_layout_engine("none")


def _axes(size: tuple[float, float], own: Axes | None = None) -> tuple[Figure, Axes]:
    """Return a new figure of this size in inches with its axes; or the axes of a user, with their
    figure."""
    from matplotlib.figure import Figure

    if own is not None:
        return cast("Figure", own.figure), own
    figure = Figure(figsize=size)
    return figure, figure.subplots()


class Draw(Protocol):
    """A function that draws a figure."""

    def __call__(self, data: ReportData, width: float | None = None) -> Figure | None:
        """Draw it, of `width` inches if it is given; None if there is nothing to draw."""


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
    width: float | None = None,
) -> Figure | None:
    """Draw the line of `pick` for each configuration. `ends`: mark each last point; `stops`: where
    runs were ended; `own`: draw there, instead of in a figure with a legend of its own."""
    names = [_shorten_name(c.legend, width) for c in data.drawn]
    y = y.replace("accuracy", "/".join(dict.fromkeys(each.score for each in data.curves)))
    figure, axes = _axes(_fit_legend(names, width), own)
    drawn = 0
    factor = 100 if percent else 1
    for i, (name, curves, style) in enumerate(
        zip(names, data.curves, choose_styles(data.drawn), strict=True)
    ):
        line = pick(curves)
        if line is None or not np.isfinite(line[1].mean).any():
            continue
        at, band = line
        mean = factor * band.mean
        std = factor * np.nan_to_num(band.std)
        colour = COLOURS[style.colour]
        step = -(-len(at) // FEW_MARKERS)
        # Curves that are close to each other have their markers at different points
        (drawn_line,) = axes.plot(
            at,
            mean,
            color=colour,
            linestyle=DASHES[style.dash],
            marker=MARKERS[style.marker],
            markevery=(i * step // len(names), step),
            label=name,
        )
        drawn += 1
        axes.fill_between(at, mean - std, mean + std, color=colour, alpha=0.14, linewidth=0)
        last = np.flatnonzero(np.isfinite(mean))[-1]
        if ends or np.isfinite(mean).sum() == 1:
            axes.plot(at[last], mean[last], MARKERS[style.marker], color=colour)
        if stops and curves.stopped:
            height = np.interp(curves.stopped, at, mean)
            axes.plot(curves.stopped, height, "|", color=colour, markersize=7, markeredgewidth=1)
    if not drawn:
        return None
    if stops and any(each.stopped for each in data.curves):
        x = f"{x}  (|: a run stopped, and keeps its last value)"
    if width is not None:
        # The shares of the figure that axes have at least, with a legend below
        x = _wrap(x, 0.8 * width)
        y = _wrap(y, 0.8 * CURVES_RATIO * width)
    axes.set(xlabel=x, ylabel=y)
    if own is not None:
        axes.legend()
    else:
        _add_legend(figure, names, width)
    return figure


def _is_narrow(width: float | None) -> bool:
    """Return whether a figure of this width has its legend below, and shorter names."""
    return width is not None and width < MIN_WIDTH_FOR_LEGEND


def _fit_legend(names: Sequence[str], width: float | None) -> tuple[float, float]:
    """Return the size of a figure of curves with a legend of these names."""
    whole = FIGURE_WIDTH if width is None else width
    height = CURVES_RATIO * whole
    if _is_narrow(width):
        lines = -(-len(names) // _count_across(names, whole))
        return whole, height + 0.1 + LEGEND_LINE_HEIGHT * lines
    return whole, max(height, 0.2 + LEGEND_LINE_HEIGHT * len(names))


def _count_across(names: Sequence[str], width: float) -> int:
    """Return how many names a legend below a figure has beside each other."""
    longest = KEY_WIDTH + LETTER_WIDTH * max(map(len, names), default=1)
    return max(1, min(len(names), int(width / longest)))


def _wrap(label: str, inches: float) -> str:
    """Break the label of an axis into lines of this length."""
    return textwrap.fill(label, int(inches / LABEL_LETTER_WIDTH))


def _add_legend(figure: Figure, names: Sequence[str], width: float | None) -> None:
    """Add the legend of a figure: at its right, or below in a narrow one."""
    if width is None or not _is_narrow(width):
        figure.legend(loc="outside right upper")
    else:
        across = _count_across(names, width)
        figure.legend(loc="outside lower center", ncols=across, columnspacing=1.0)


def _shorten_name(text: str, width: float | None = None) -> str:
    """Shorten a name for a legend, without mathematics, and without a leading underscore, which
    would hide it."""
    most = NAME_LENGTHS[_is_narrow(width)]
    short = (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")
    return f"\u200b{short}" if short.startswith("_") else short


def _draw_rounds(pick: Callable[[Curves], Band | None], label: str, percent: bool = False) -> Draw:

    def line(each: Curves) -> Line:
        band = pick(each)
        return None if band is None else (band.round, band)

    def draw(data: ReportData, width: float | None = None) -> Figure | None:
        figure = draw_lines(data, line, "round", label, percent, stops=True, width=width)
        if figure is not None:
            mark_changes(data, figure.axes[0])
        return figure

    return draw


def mark_changes(data: ReportData, axes: Axes) -> None:
    """Draw a line at each round in which the data change."""
    for at in sorted({at for each in data.curves for at in each.changes}):
        axes.axvline(at, color=CHANGE_COLOUR, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)


def _draw_over(pick: Callable[[Curves], Line], label: str) -> Draw:
    """Return what draws the accuracy over what was spent."""

    def draw(data: ReportData, width: float | None = None) -> Figure | None:
        return draw_lines(data, pick, label, "accuracy, %", True, ends=True, width=width)

    return draw


def _draw_clients(data: ReportData, width: float | None = None) -> Figure | None:
    """Draw the accuracies of the clients at the end, in ascending order."""

    def pick(each: Curves) -> Line:
        return (100 * each.clients.round, each.clients) if len(each.clients.round) else None

    x = "clients from worst to best, %"
    figure = draw_lines(data, pick, x, "accuracy, %", True, width=width)
    if figure is not None:
        figure.axes[0].axvspan(0, 10, color="#eef4fb", zorder=0)
    return figure


def _draw_newcomers(data: ReportData, width: float | None = None) -> Figure | None:
    """Draw the accuracy of new clients over their local steps."""
    from matplotlib.ticker import MaxNLocator

    def line(each: Curves) -> Line:
        return (each.newcomers.round, each.newcomers) if len(each.newcomers.round) else None

    figure = _draw_over(line, "local steps of a new client")(data, width)
    if figure is not None:
        (axes,) = figure.axes
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        # A marker where there is a number
        for each in axes.lines:
            each.set_markevery(None)
    return figure


def over_bytes(each: Curves, column: str) -> Line:
    """Return a column over the megabytes that clients have sent and received."""
    band = each.history.get(column)
    sent = each.history.get("bytes")
    return None if band is None or sent is None else _skip_round_0(sent.mean / 1e6, band)


def _clock(each: Curves) -> Line:
    band = each.history.get(each.score)
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


def _draw_labels(axes: Axes, data: ReportData, label: str, width: float | None) -> None:
    """Name a row for each configuration, from the top. After the last mark is drawn: rows without a
    mark are then kept in view."""
    axes.set_yticks(range(len(data.drawn)), [_shorten_name(c.legend, width) for c in data.drawn])
    axes.invert_yaxis()
    axes.set_xlabel(label)


def _size_rows(data: ReportData, width: float | None) -> tuple[float, float]:
    """Return the size of a figure with a row for each configuration."""
    return FIGURE_WIDTH if width is None else width, 0.9 + 0.24 * len(data.drawn)


def draw_methods(
    data: ReportData, width: float | None = None, own: Axes | None = None
) -> Figure | None:
    """Draw the headline accuracy of each configuration: a circle for each seed, their mean and
    deviation. `own`: as for `draw_lines`."""
    finals = next(iter(finals_of(data.drawn).values()))
    if not any(each["seeds"] for each in finals):
        return None
    figure, axes = _axes(_size_rows(data, width), own)
    for i, (each, style) in enumerate(zip(finals, choose_styles(data.drawn), strict=True)):
        if not each["seeds"]:
            continue
        seeds = 100 * np.array(each["seeds"], float)
        at = np.full(len(seeds), i)
        colour = COLOURS[style.colour]
        marker = MARKERS[style.marker]
        axes.plot(seeds, at, marker, color=colour, markerfacecolor="none", alpha=0.7)
        mean = 100 * (each["mean"] or 0)
        std = 100 * (each["std"] or 0)
        axes.errorbar(mean, i, xerr=std, color=colour, marker="|", markersize=9, markeredgewidth=2)
    first = headline_of(data.drawn)
    heading = first.heading.removeprefix(f"{first.curve} ")
    _draw_labels(axes, data, f"{first.curve}, {heading}, %", width)
    return figure


def _stack(
    data: ReportData,
    rows: Sequence[Sequence[float]],
    label: str,
    colours: Sequence[int],
    names: Sequence[str] = (),
    width: float | None = None,
) -> Figure | None:
    """Draw a bar for each configuration, of parts in these colours; with `names` a legend of the
    parts."""
    if not any(map(len, rows)):
        return None
    figure, axes = _axes(_size_rows(data, width))
    for i, row in enumerate(rows):
        ends = np.cumsum([0.0, *row])
        for k, spent in enumerate(row):
            named = names[k] if names and not i else None
            axes.barh(
                i,
                spent,
                left=ends[k],
                height=0.62,
                color=CLUSTER_COLOURS[colours[k % len(colours)]],
                label=named,
            )
    _draw_labels(axes, data, label, width)
    if names:
        _add_legend(figure, names, width)
    return figure


def _time(data: ReportData, width: float | None = None) -> Figure | None:
    """Draw the seconds of a run by their parts."""
    spent = [
        [timing(configuration, part) or 0.0 for part in PARTS_OF_SECONDS]
        for configuration in data.drawn
    ]
    parts = ("set up", "compile", "train", "evaluate")
    return _stack(data, spent, "seconds per run", (2, 7, 0, 4), parts, width)


def _waited(data: ReportData, width: float | None = None) -> Figure | None:
    waited = [curves.waited.tolist() for curves in data.curves]
    colours = range(len(CLUSTER_COLOURS))
    return _stack(data, waited, "simulated seconds of waiting, by cluster", colours, (), width)


def _draw_ranks(data: ReportData, width: float | None = None) -> Figure | None:
    """Draw the critical differences of mean ranks."""
    over = compute_mean_ranks(data.table)
    return None if over is None else _draw_picture(picture(over, _count_pixels(width)))


def _draw_profiles(data: ReportData, width: float | None = None) -> Figure | None:
    """Draw the performance profiles."""
    over = compare_over_settings(data.table)
    if over is None:
        return None
    return _draw_picture(profile_picture.picture(over, _count_pixels(width)))


def _count_pixels(width: float | None) -> float:
    """Return the width in pixels of a picture in a figure of this width."""
    return WIDTH if width is None else width * PIXELS_PER_INCH


def _draw_picture(drawn: Picture) -> Figure:
    figure, axes = _axes((drawn.width / PIXELS_PER_INCH, drawn.height / PIXELS_PER_INCH))
    for stroke in drawn.strokes:
        axes.plot(
            [stroke.x1, stroke.x2],
            [stroke.y1, stroke.y2],
            color="black" if stroke.colour is None else CLUSTER_COLOURS[stroke.colour],
            linewidth=0.8 * stroke.width,
            solid_capstyle="butt",
        )
    sides = {"start": "left", "middle": "center", "end": "right"}
    for word in drawn.words:
        axes.text(
            word.x, word.y, word.text.replace("$", r"\$"), ha=sides[word.anchor], fontsize=7.5
        )
    axes.set(xlim=(0, drawn.width), ylim=(drawn.height, 0))
    axes.set_axis_off()
    return figure


FIGURES: dict[str, Draw] = {
    "accuracy": _draw_rounds(
        lambda each: each.history.get(each.score), "accuracy, %", percent=True
    ),
    "worst_tenth": _draw_rounds(
        lambda each: each.history.get(f"{each.score}_worst10"),
        "accuracy of the worst tenth, %",
        percent=True,
    ),
    "loss": _draw_rounds(lambda each: each.history.get("loss"), "test loss"),
    "ari": _draw_rounds(lambda each: each.history.get("ari"), "adjusted Rand index"),
    "methods": draw_methods,
    "clients": _draw_clients,
    "newcomers": _draw_newcomers,
    "bytes": _draw_over(lambda each: over_bytes(each, each.score), BYTES_LABEL),
    "clock": _draw_over(_clock, "simulated seconds"),
    "waited": _waited,
    "seconds": _draw_over(lambda each: over_seconds(each, each.score), SECONDS_LABEL),
    "clusters": _draw_rounds(lambda each: each.clusters, "clusters"),
    **PANELS,
    "time": _time,
    "critical_difference": _draw_ranks,
    "performance_profile": _draw_profiles,
}
