"""Enters: ReportData. Leaves: the matplotlib figures that have a small panel for each
configuration."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from cfljax.errors import SpecError
from cfljax.report.mixture_pictures import Mixture
from cfljax.report.report_data import ReportData
from cfljax.report.run_pictures import Confusion, OverRounds, RunPictures
from cfljax.report.styles import CLUSTER_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = TypeVar("Panel", Confusion, OverRounds, Mixture)

UNASSIGNED_COLOUR = "#c9ced8"
# The most panels beside each other
MAX_PANELS_IN_A_ROW = 4
MAX_PANELS = 12
# In a figure of a given width, panels are smaller by this factor at most
SMALLEST = 0.6
# Of a matrix: the height of a row in inches, the most letters of a name, and for how many inches of
# the figure to each column it has numbers
MATRIX_ROW = 0.22
MATRIX_NAME = 22
MIN_MATRIX_CELL = 0.5
# The width of a letter of titles, in inches
LETTER_WIDTH = 0.062


def shade(number: int) -> str:
    """Return the colour of a cluster or group: one of CLUSTER_COLOURS, then others around the
    colour circle; grey for −1."""
    if number < 0:
        return UNASSIGNED_COLOUR
    if number < len(CLUSTER_COLOURS):
        return CLUSTER_COLOURS[number]
    red, green, blue = colorsys.hls_to_rgb(
        round(number * 137.508) % 360 / 360, (0.48, 0.62, 0.38)[number % 3], 0.55
    )
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _colour(numbers: np.ndarray) -> np.ndarray:
    from matplotlib.colors import to_rgb

    known, at = np.unique(numbers, return_inverse=True)
    return np.array([to_rgb(shade(int(n))) for n in known])[at].reshape(*numbers.shape, 3)


def _draw_grid(
    data: ReportData,
    kind: Callable[[RunPictures], Sequence[Panel | None]],
    draw: Callable[[Axes, Panel], None],
    side: tuple[float, float],
    width: float | None = None,
    own: Axes | None = None,
) -> Figure | None:
    """Draw the first MAX_PANELS pictures of a kind beside each other, each of `side` inches, or
    smaller to fit into `width`; None when there are none. `own`: draw the only picture there."""
    from matplotlib.figure import Figure

    chosen = [
        (configuration.legend, each)
        for configuration, pictures in zip(data.drawn, data.pictures, strict=True)
        if pictures is not None
        for each in kind(pictures)
        if each is not None
    ][:MAX_PANELS]
    if not chosen:
        return None
    if own is not None and len(chosen) > 1:
        raise SpecError(
            f"ax: there are {len(chosen)} pictures, one of each method; choose one by methods=, or "
            "leave ax out"
        )
    if own is not None:
        _draw_panel(own, *chosen[0], draw)
        return cast("Figure", own.figure)
    most = MAX_PANELS_IN_A_ROW if width is None else max(1, int(width / (SMALLEST * side[0])))
    across = min(most, len(chosen))
    down = -(-len(chosen) // across)
    whole = max(2.4, side[0] * across) if width is None else width
    smaller = min(1.0, max(SMALLEST + 0.1, whole / (side[0] * across)))
    figure = Figure(figsize=(whole, smaller * side[1] * down))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (name, each) in zip(panels, chosen, strict=False):
        _draw_panel(axes, name, each, draw, min(30, int(whole / across / LETTER_WIDTH)))
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    return figure


def _draw_panel(
    axes: Axes, name: str, each: Panel, draw: Callable[[Axes, Panel], None], most: int = 30
) -> None:
    """Draw a picture of the configuration of this name, which is its title of at most so many
    letters."""
    quantity = getattr(each, "name", "")
    title = f"{name}, {quantity}" if quantity else name
    axes.set_title((title if len(title) <= most else title[: most - 1] + "…").replace("$", r"\$"))
    axes.grid(False)
    draw(axes, each)


def _draw_strips(axes: Axes, p: OverRounds | Mixture) -> None:
    """Draw a grid of colours, a row per client or the weights of a true group, with the true groups
    as a strip at its left."""
    at_columns, label = (p.at, p.xlabel) if isinstance(p, Mixture) else (p.rounds, "round")
    rows, columns = p.colours.shape
    axes.imshow(_colour(p.colours), aspect="auto", extent=(-0.5, columns - 0.5, rows, 0))
    strip = max(columns * 0.05, 0.2)
    axes.imshow(
        _colour(p.groups[:, None]),
        aspect="auto",
        extent=(-0.5 - 1.6 * strip, -0.5 - 0.6 * strip, rows, 0),
    )
    axes.set_xlim(-0.5 - 1.6 * strip, columns - 0.5)
    at = np.unique(np.linspace(0, columns - 1, min(4, columns)).round().astype(int))
    axes.set_xticks(at, [str(r) for r in at_columns[at]])
    axes.set_yticks([])
    axes.set_xlabel(label)
    if isinstance(p, Mixture):
        for edge in np.flatnonzero(np.diff(p.groups)):
            axes.axhline(float(edge) + 1, color="white", linewidth=1.2)


def _draw_confusion(axes: Axes, p: Confusion) -> None:
    """Draw the number of clients in each cluster (rows) and true group (columns)."""
    axes.imshow(p.table, cmap="Blues", vmin=0, aspect="auto")
    axes.set_xticks(range(len(p.groups)), p.groups)
    axes.set_yticks(range(len(p.clusters)), p.clusters)
    axes.set(xlabel="true group", ylabel="cluster")
    if p.table.size <= 100:
        half = p.table.max() / 2
        for (k, g), count in np.ndenumerate(p.table):
            if count:
                axes.text(
                    g,
                    k,
                    str(count),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if count > half else "black",
                )


def draw_assignment(
    data: ReportData, width: float | None = None, own: Axes | None = None
) -> Figure | None:
    """Draw the cluster of each client over the rounds, of the first run of each configuration."""
    return _draw_grid(data, lambda d: [d.assignment], _draw_strips, (1.8, 1.9), width, own)


def _draw_groups(data: ReportData, width: float | None = None) -> Figure | None:
    return _draw_grid(data, lambda d: [d.groups], _draw_strips, (1.8, 1.9), width)


def _draw_mixtures(data: ReportData, width: float | None = None) -> Figure | None:
    return _draw_grid(data, lambda d: d.mixtures, _draw_strips, (2.4, 1.9), width)


def _draw_confusions(data: ReportData, width: float | None = None) -> Figure | None:
    return _draw_grid(data, lambda d: [d.confusion], _draw_confusion, (1.8, 1.8), width)


def _draw_agreements(data: ReportData, width: float | None = None) -> Figure | None:
    """Draw how well the clusters of methods agree, a panel for each data set."""
    from matplotlib.figure import Figure

    shown = data.agreements[:MAX_PANELS_IN_A_ROW]
    if not shown:
        return None
    sizes = [len(each.members) for each in shown]
    whole = 5.5 if width is None else width
    figure = Figure(figsize=(whole, sum(0.7 + MATRIX_ROW * size for size in sizes)))
    panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=sizes).ravel()
    for axes, each in zip(panels, shown, strict=True):
        names = [data.drawn[i].legend.replace("$", r"\$") for i in each.members]
        axes.imshow(each.table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        numbers = range(1, len(names) + 1)
        axes.set_xticks(range(len(names)), [str(number) for number in numbers])
        labels = [f"{name[:MATRIX_NAME]} {n}" for name, n in zip(names, numbers, strict=True)]
        axes.set_yticks(range(len(names)), labels)
        axes.grid(False)
        axes.set_title(each.heading[:44] or "agreement of clusterings (ARI)")
        if whole / len(names) < MIN_MATRIX_CELL:
            continue
        for (i, j), value in np.ndenumerate(each.table):
            if np.isfinite(value):
                colour = "white" if value > 0.5 else "black"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    return figure


PANELS = {
    "assignment": draw_assignment,
    "agreement": _draw_agreements,
    "groups": _draw_groups,
    "mixture": _draw_mixtures,
    "confusion": _draw_confusions,
}
"""Figure name -> the function that draws it, or returns None where there is nothing to draw."""
