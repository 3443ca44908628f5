"""The page of benchmarks.scaling: growth curves, a cost model fitted to them, and what it says about machines that nobody
measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PARTS = ("a round", "a client", "a participant", "a parameter", "local training", "choosing a cluster")
MACHINES = {
    "v5e-8 (TPU)": (8, 197e12, 0.819e12),
    "8 x H200": (8, 989e12, 4.8e12),
    "256-chip v5e slice": (256, 197e12, 0.819e12),
}
"""Chips, bfloat16 operations and bytes of memory traffic per second and chip, from the makers' data sheets."""
SHARE = 0.05
"""Of a chip's peak that small unequal clients are assumed to reach: an assumption, not a measurement."""


def features(point: dict[str, Any]) -> list[float]:
    """What a round's time is a sum of, each with a price of its own; see PARTS."""
    s, d, n = point["participants"], point["parameters"], point["samples"]
    models = point["clusters"] or 1
    return [1.0, point["clients"], s, models * d, s * n * d, s * n * d * models if point["clusters"] else 0.0]


def fit(points: list[dict[str, Any]]) -> tuple[np.ndarray, float]:
    """(prices >= 0, median relative error) on points of one device and one process, relative errors weighted equally."""
    from scipy.optimize import nnls

    alone = [p for p in points if p["devices"] * p["processes"] == 1]
    measured = np.array([p["seconds_round"] for p in alone])
    rows = np.array([features(p) for p in alone]) / measured[:, None]
    scale = rows.max(axis=0)
    scale[scale == 0] = 1
    prices = nnls(rows / scale, np.ones(len(rows)))[0] / scale
    return prices, float(np.median(np.abs(rows @ prices - 1)))


def slope(points: list[dict[str, Any]], axis: str, quantity: str) -> float:
    """The exponent of the growth between the first and the last point."""
    first, last = points[0], points[-1]
    return float(np.log(last[quantity] / max(first[quantity], 1e-9)) / np.log(last[axis] / first[axis]))


def write_page(found: dict[str, Any], out: Path) -> str:
    """Write scaling.md and scaling.svg; the page's text."""
    _plot(found["points"], out / "scaling.svg")
    every = [p for points in found["points"].values() for p in points]
    prices, error = fit(every)
    machine = found["machine"]
    lines = [
        "# How the cost of a round grows",
        "",
        f"`python -m benchmarks.scaling` on {machine['cpu']}, {machine['cores']} cores; every point in a new process.",
        "Seconds are of one round, evaluation apart. Devices are cores of this CPU made into several, so more of them than cores",
        "cannot be faster: those points show what the exchanges cost.",
        "",
        "![growth curves](scaling.svg)",
        "",
    ]
    for axis, points in found["points"].items():
        name = axis.partition(",")[0]
        lines += [f"## {axis}", "", f"| {name} | s a round | s an evaluation | program memory, MB | peak memory, GB | build, s |"]
        lines += ["| ---: | ---: | ---: | ---: | ---: | ---: |"]
        for p in points:
            numbers = f"{p['seconds_round']:.4f} | {p['seconds_eval']:.4f} | {p['program_bytes'] / 1e6:.1f}"
            lines.append(f"| {p[name]:,} | {numbers} | {p['peak_bytes'] / 1e9:.2f} | {p['seconds_build']:.2f} |")
        if len(points) > 1:
            time, memory = (slope(points, name, q) for q in ("seconds_round", "program_bytes"))
            lines += [
                "",
                f"Time grows as {name}^{time:.2f}, the program's memory as {name}^{memory:.2f} (first to last point).",
                "",
            ]
    lines += _model(prices, error, machine)
    page = "\n".join(lines) + "\n"
    (out / "scaling.md").write_text(page)
    return page


def _model(prices: np.ndarray, error: float, machine: dict[str, Any]) -> list[str]:
    lines = ["## Where the cost goes", "", "Non-negative least squares on the points with one device:", ""]
    units = (
        "",
        "",
        "",
        "per model and parameter",
        "per participant, sample and parameter",
        "per participant, sample, parameter and model",
    )
    lines += ["| part | seconds each | |", "| --- | ---: | --- |"]
    lines += [f"| {part} | {price:.3g} | {unit} |" for part, price, unit in zip(PARTS, prices, units, strict=True)]
    lines += ["", f"The median error of a point is {error:.0%}.", "", "## Extrapolated, not measured", ""]
    lines += ["No such machine was at hand. The model's compute and memory prices are scaled by the makers' peaks, with"]
    lines += [f"{SHARE:.0%} of the peak assumed for local training; exchanges between chips are left out.", ""]
    lines += ["| machine | round of 10,000 participants, 1e6 parameters, 50 samples |", "| --- | ---: |"]
    point = {"participants": 10_000, "parameters": 1_000_000, "samples": 50, "clusters": 0, "clients": 1_000_000}
    here = prices @ np.array(features(point))
    lines.append(f"| this machine, by the model | {here:.3g} s |")
    for name, (chips, flops, traffic) in MACHINES.items():
        own = prices.copy()
        own[[4, 5]] *= machine["flops"] / (flops * SHARE) / chips
        own[[1, 2, 3]] *= machine["copy_bytes_per_s"] / traffic
        lines.append(f"| {name} | {own @ np.array(features(point)):.3g} s |")
    return lines


def _plot(every: dict[str, list[dict[str, Any]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    across = min(4, len(every))
    figure, axes = plt.subplots(
        -(-len(every) // across), across, figsize=(4 * across, 3.2 * -(-len(every) // across)), squeeze=False
    )
    for place in axes.flat[len(every) :]:
        place.set_visible(False)
    for place, (axis, points) in zip(axes.flat, every.items(), strict=False):
        name = axis.partition(",")[0]
        place.loglog([p[name] for p in points], [p["seconds_round"] for p in points], "o-", label="seconds a round")
        place.loglog([p[name] for p in points], [p["program_bytes"] / 1e9 for p in points], "s--", label="program memory, GB")
        place.set(title=axis, xlabel=name)
        place.grid(True, alpha=0.3)
    axes.flat[0].legend()
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
