"""Figures for papers that have a small panel per configuration."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfljax.report.content import Content
from cfljax.report.detail import Confusion, Detail, Matrix, Picture, Scatter

GROUPS = ("#0072b2", "#d55e00", "#009e73", "#c4629b", "#dd9500", "#3fa7e0", "#882255", "#6f7787")
NONE = "#c9ced8"
MARKS = "os^Dvx"
ACROSS = 4
MOST_PANELS = 12


def shade(number: int) -> str:
    """The colour of a cluster or group: the page's, as far as those go, then others around the circle."""
    if number < 0:
        return NONE
    if number < len(GROUPS):
        return GROUPS[number]
    red, green, blue = colorsys.hls_to_rgb(round(number * 137.508) % 360 / 360, (0.48, 0.62, 0.38)[number % 3], 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _coloured(numbers: np.ndarray) -> np.ndarray:
    """Numbers of colours [...] as RGB [..., 3]."""
    from matplotlib.colors import to_rgb

    known, at = np.unique(numbers, return_inverse=True)
    return np.array([to_rgb(shade(int(n))) for n in known])[at].reshape(*numbers.shape, 3)


def _grid(
    content: Content, pick: Callable[[Detail], Sequence[Any]], draw: Callable[[Any, Any], None], side: tuple[float, float]
) -> Any:
    """The first MOST_PANELS pictures of a kind beside each other; None when there are none."""
    from matplotlib.figure import Figure

    found = [
        (configuration.name, each)
        for configuration, detail in zip(content.drawn, content.details, strict=True)
        if detail is not None
        for each in pick(detail)
        if each is not None
    ][:MOST_PANELS]
    if not found:
        return None
    across = min(ACROSS, len(found))
    down = -(-len(found) // across)
    figure = Figure(figsize=(max(2.4, side[0] * across), side[1] * down))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (name, each) in zip(panels, found, strict=False):
        own = getattr(each, "name", "")
        title = f"{name}, {own}" if own else name
        axes.set_title((title if len(title) <= 30 else title[:29] + "…").replace("$", r"\$"))
        axes.grid(False)
        draw(axes, each)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    return figure


def assignment(content: Content) -> Any:
    """Clusters over rounds, a row per client, with the true groups as a strip."""
    return _grid(content, lambda d: [d.picture], _assignment, (1.8, 1.9))


def _assignment(axes: Any, p: Picture) -> None:
    rows, columns = p.colours.shape
    axes.imshow(_coloured(p.colours), aspect="auto", extent=(-0.5, columns - 0.5, rows, 0))
    strip = max(columns * 0.05, 0.2)
    axes.imshow(_coloured(p.groups[:, None]), aspect="auto", extent=(-0.5 - 1.6 * strip, -0.5 - 0.6 * strip, rows, 0))
    axes.set_xlim(-0.5 - 1.6 * strip, columns - 0.5)
    at = np.unique(np.linspace(0, columns - 1, min(4, columns)).round().astype(int))
    axes.set_xticks(at, [str(r) for r in p.rounds[at]])
    axes.set_yticks([])
    axes.set_xlabel("round")


def confusion(content: Content) -> Any:
    """Found clusters (rows) and true groups (columns)."""
    return _grid(content, lambda d: [d.confusion], _confusion, (1.8, 1.8))


def _confusion(axes: Any, p: Confusion) -> None:
    axes.imshow(p.table, cmap="Blues", vmin=0, aspect="auto")
    axes.set_xticks(range(len(p.groups)), p.groups)
    axes.set_yticks(range(len(p.clusters)), p.clusters)
    axes.set(xlabel="true group", ylabel="cluster")
    if p.table.size <= 100:
        half = p.table.max() / 2
        for (k, g), count in np.ndenumerate(p.table):
            if count:
                axes.text(g, k, str(count), ha="center", va="center", fontsize=7, color="white" if count > half else "black")


def similarity(content: Content) -> Any:
    """Matrices between clients, in the order of the found clusters."""
    return _grid(content, lambda d: d.matrices, _similarity, (2.1, 1.9))


def _similarity(axes: Any, p: Matrix) -> None:
    beside = p.values[~np.eye(len(p.values), dtype=bool)]
    finite = beside[np.isfinite(beside)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    image = axes.imshow(p.values, vmin=low, vmax=high if high > low else low + 1, cmap="viridis")
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
    for edge in np.flatnonzero(np.diff(p.colours)):
        axes.axhline(edge + 0.5, color="white", linewidth=0.5)
        axes.axvline(edge + 0.5, color="white", linewidth=0.5)
    axes.set(xticks=[], yticks=[])


def embedding(content: Content) -> Any:
    """Clients as points: colour by true group, shape by found cluster."""
    return _grid(content, lambda d: d.scatters, _embedding, (2.4, 2.2))


def _embedding(axes: Any, p: Scatter) -> None:
    for colour in np.unique(p.colours):
        here = p.colours == colour
        mark = MARKS[max(int(colour), 0) % len(MARKS)]
        axes.scatter(*p.points[here].T, c=_coloured(p.groups[here]), marker=mark, s=14, linewidths=0.8, alpha=0.8)
