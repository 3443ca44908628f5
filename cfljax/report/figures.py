"""The figures as PNG and SVG files for papers: fixed sizes, letters as paths, the same bytes every time."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cfljax.report.content import Content
from cfljax.report.curves import Band
from cfljax.report.embed import FINAL, PARTS, final, styles, timing
from cfljax.report.panels import assignment, confusion, embedding, similarity

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c4629b", "#dd9500", "#3fa7e0", "#882255", "#6f7787")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
SIZE = (5.5, 3.3)
"""Inches."""
LINE = 0.15
"""Inches of a line of the legend."""
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ef",
    "grid.linewidth": 0.6,
    "axes.edgecolor": "#8a93a3",
    "axes.titlesize": 8,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.3,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "cfljax",
    "image.interpolation": "nearest",
    "image.composite_image": False,
    "figure.constrained_layout.use": True,
}


def render(content: Content) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of every figure that there is something for, one after the other."""
    import matplotlib

    plain: Any = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}  # whatever matplotlibrc says
    with matplotlib.rc_context(plain | STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # letters that the font lacks are drawn as boxes
        for name, draw in FIGURES.items():
            figure = draw(content)
            if figure is None:
                continue
            for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
                out = io.BytesIO()
                figure.savefig(out, format=kind, metadata=metadata)
                yield f"{name}.{kind}", out.getvalue()
                figure.set_layout_engine("none")  # settled: the second file need not work it out again


def _axes(width: float = SIZE[0], height: float = SIZE[1]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


Pick = Callable[[int], tuple[np.ndarray, Band] | None]


def _lines(content: Content, pick: Pick, x: str, y: str, percent: bool = False, ends: bool = False) -> Any:
    """A curve with its band for each configuration for which `pick` has (x, band)."""
    figure, axes = _axes(height=max(SIZE[1], 0.2 + LINE * len(content.drawn)))
    factor, any_drawn = 100 if percent else 1, False
    for i, (configuration, (shade, dash)) in enumerate(zip(content.drawn, styles(content), strict=True)):
        found = pick(i)
        if found is None or not np.isfinite(found[1].mean).any():
            continue
        at, band = found
        mean, std = factor * band.mean, factor * np.nan_to_num(band.std)
        axes.plot(at, mean, color=COLOURS[shade], linestyle=DASHES[dash], label=_name(configuration.name))
        axes.fill_between(at, mean - std, mean + std, color=COLOURS[shade], alpha=0.14, linewidth=0)
        last = np.flatnonzero(np.isfinite(mean))[-1]
        if ends or np.isfinite(mean).sum() == 1:
            axes.plot(at[last], mean[last], "o", color=COLOURS[shade], markersize=3.5)
        any_drawn = True
    if not any_drawn:
        return None
    axes.set(xlabel=x, ylabel=y)
    figure.legend(loc="outside right upper")
    return figure


def _name(text: str) -> str:
    """As a legend shows it: no mathematics, no leading underscore (which would hide it), not too long."""
    short = text if len(text) <= 44 else text[:43] + "…"
    return short.replace("$", r"\$").replace("_", "\u200b_", 1) if short.startswith("_") else short.replace("$", r"\$")


def _over_rounds(name: str, label: str, percent: bool = False) -> Callable[[Content], Any]:
    def draw(content: Content) -> Any:
        def pick(i: int) -> tuple[np.ndarray, Band] | None:
            band = content.curves[i].history.get(name)
            return None if band is None else (band.round, band)

        return _lines(content, pick, "round", label, percent)

    return draw


def _clusters(content: Content) -> Any:
    def pick(i: int) -> tuple[np.ndarray, Band] | None:
        band = content.curves[i].clusters
        return None if band is None else (band.round, band)

    return _lines(content, pick, "round", "clusters")


def _threshold(content: Content) -> Any:
    def pick(i: int) -> tuple[np.ndarray, Band] | None:
        own = content.curves[i].own
        band = own.get("epsilon", own.get("threshold"))
        return None if band is None else (band.round, band)

    return _lines(content, pick, "round", "threshold")


def _clients(content: Content) -> Any:
    def pick(i: int) -> tuple[np.ndarray, Band] | None:
        band = content.curves[i].clients
        return (100 * band.round, band) if len(band.round) else None

    figure = _lines(content, pick, "clients from worst to best, %", "accuracy, %", True)
    if figure is not None:
        figure.axes[0].axvspan(0, 10, color="#eef4fb", zorder=0)
    return figure


def _against_bytes(content: Content) -> Any:
    def pick(i: int) -> tuple[np.ndarray, Band] | None:
        band, sent = content.curves[i].history.get("accuracy"), content.curves[i].history.get("bytes")
        return None if band is None or sent is None else (sent.mean / 1e6, band)

    return _lines(content, pick, "sent, MB", "accuracy, %", True, ends=True)


def _against_seconds(content: Content) -> Any:
    def pick(i: int) -> tuple[np.ndarray, Band] | None:
        band, spent = content.curves[i].history.get("accuracy"), content.curves[i].seconds
        if band is None or not math.isfinite(spent) or not len(band.round) or band.round[-1] <= 0:
            return None
        return band.round / band.round[-1] * spent, band

    return _lines(content, pick, "seconds without compiling", "accuracy, %", True, ends=True)


def _methods(content: Content) -> Any:
    data = [final(configuration, FINAL[0]) for configuration in content.drawn]
    if not any(each["seeds"] for each in data):
        return None
    figure, axes = _axes(height=0.9 + 0.24 * len(data))
    for i, (each, (shade, _)) in enumerate(zip(data, styles(content), strict=True)):
        if not each["seeds"]:
            continue
        seeds = 100 * np.array(each["seeds"], float)
        rings = {"marker": "o", "markersize": 3.5, "markerfacecolor": "none", "linestyle": "none", "alpha": 0.7}
        axes.plot(seeds, np.full(len(seeds), i), color=COLOURS[shade], **rings)
        bar = {"marker": "|", "markersize": 9, "markeredgewidth": 2}
        axes.errorbar(100 * each["mean"], i, xerr=100 * (each["std"] or 0), color=COLOURS[shade], **bar)
    axes.set_yticks(range(len(data)), [_name(c.name) for c in content.drawn])
    axes.invert_yaxis()
    axes.set_xlabel("accuracy, mean of the last ten evaluations, %")
    return figure


def _time(content: Content) -> Any:
    if not content.drawn:
        return None
    figure, axes = _axes(height=0.9 + 0.24 * len(content.drawn))
    begin = np.zeros(len(content.drawn))
    named = ("set up", "compile", "train", "evaluate")
    for part, name, shade in zip(PARTS, named, (COLOURS[2], COLOURS[7], COLOURS[0], COLOURS[4]), strict=True):
        spent = np.array([timing(configuration, part) or 0.0 for configuration in content.drawn])
        axes.barh(range(len(spent)), spent, left=begin, height=0.62, color=shade, label=name)
        begin += spent
    axes.set_yticks(range(len(begin)), [_name(c.name) for c in content.drawn])
    axes.invert_yaxis()
    axes.set_xlabel("seconds per run")
    figure.legend(loc="outside right upper")
    return figure


FIGURES: dict[str, Callable[[Content], Any]] = {
    "accuracy": _over_rounds("accuracy", "accuracy, %", percent=True),
    "worst_tenth": _over_rounds("accuracy_worst10", "accuracy of the worst tenth, %", percent=True),
    "loss": _over_rounds("loss", "test loss"),
    "ari": _over_rounds("ari", "adjusted Rand index"),
    "methods": _methods,
    "clients": _clients,
    "bytes": _against_bytes,
    "seconds": _against_seconds,
    "clusters": _clusters,
    "threshold": _threshold,
    "assignment": assignment,
    "confusion": confusion,
    "similarity": similarity,
    "embedding": embedding,
    "time": _time,
}
