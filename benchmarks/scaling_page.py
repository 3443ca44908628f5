"""The page of benchmarks.scaling: growth curves, a cost model fitted to them, and what it says about machines that nobody
measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PARTS = {
    "a round": "",
    "a client": "per client: drawing the participants",
    "a participant": "per participant",
    "an update": "per participant and parameter: making, adding up and comparing updates",
    "a model": "per cluster and parameter: moving the clusters' models",
    "local training": "per participant, sample and parameter",
    "choosing a cluster": "per participant, sample, parameter and cluster",
}
"""What a round's time is a sum of, each with a price of its own."""
MACHINES = {
    "v5e-8": (8, 197e12 / 6, 0.819e12, 0.2e12),
    "8 x H200": (8, 67e12, 4.8e12, 0.45e12),
    "256-chip v5e slice": (256, 197e12 / 6, 0.819e12, 0.2e12),
}
"""Chips; float32 operations per second and chip (v5e: six bfloat16 products make one of precision "highest"; H200: without tensor
cores), bytes of memory per second and chip, bytes per second and direction between chips: of the makers' data sheets."""
SHARE = 0.05
"""Of a chip's peak that local training on small unequal clients is assumed to reach: an assumption, not a measurement."""


HEAD = """# How the cost of a round grows

`python -m benchmarks.scaling --out docs` on {cpu}, {cores}, JAX {jax}; every point in a new process, all in
[scaling.json](scaling.json). {shared}Seconds are of processor time: of a round's training on
all threads, devices and processes together, evaluation apart. Devices are simulated on a CPU: work that is shared out without loss
costs on eight of them what it costs on one; what it costs more are the exchanges, and the work that every device does for itself.

![growth curves](scaling.svg)

"""
WHY = """## What is not flat, and why

- Clients: each round draws a random number for every client, which is the price of a client below; the peak of the process is the
  samples, and building them.
- Participants in blocks: of each participant 256 numbers are kept for the discrepancy, and a few more for its share.
- Participants without blocks: their updates are held at once up to 256 MB, then blocks of 64 MB.
- Devices: a device that has its own clients' samples has room for all participants, as any number may be its own.
- Clusters: every model goes over every participant's samples.

"""
ELSEWHERE = """## Extrapolated, not measured

No such machine was available: what follows is the model above with other prices, and only as good as these assumptions. Local
training and the choice of a cluster run at {share} of a chip's float32 peak and are shared out evenly; the parts of participants,
updates, models and clients go by the bandwidth of the chips' memories, the first two shared out, the others not; the sums of the
clusters' models are exchanged once a round in a ring; a round's own price stays. From the makers' data sheets:

| machine | chips | float32, TFLOP/s a chip | memory, TB/s a chip | link, GB/s |
| --- | ---: | ---: | ---: | ---: |
"""


def features(point: dict[str, Any]) -> list[float]:
    """How much of each of PARTS a round has."""
    s, d, n = point["participants"], point["parameters"], point["samples"]
    models = point["clusters"] or 1
    return [1.0, point["clients"], s, s * d, models * d, s * n * d, s * n * d * models if point["clusters"] else 0.0]


def _counts(point: dict[str, Any]) -> bool:
    """Whether the model is for such a point."""
    return bool(point["devices"] * point["processes"] == 1 and point["method"] in ("fedavg", "ifca"))


def fit(points: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """(prices >= 0, relative errors) of FedAvg and IFCA on one device, relative errors weighted equally."""
    from scipy.optimize import nnls

    alone = [p for p in points if _counts(p)]
    measured = np.array([p["seconds_round"] for p in alone])
    rows = np.array([features(p) for p in alone]) / measured[:, None]
    scale = rows.max(axis=0)
    scale[scale == 0] = 1
    prices = nnls(rows / scale, np.ones(len(rows)))[0] / scale
    return prices, np.abs(rows @ prices - 1)


def slope(points: list[dict[str, Any]], axis: str, quantity: str) -> float:
    """The exponent of the growth between the first and the last point."""
    first, last = points[0], points[-1]
    return float(np.log(last[quantity] / max(first[quantity], 1e-9)) / np.log(last[axis] / first[axis]))


def write_page(found: dict[str, Any], out: Path) -> str:
    """Write scaling.md, scaling.svg and scaling.png; the page's text."""
    _plot(found["points"], out)
    machine = found["machine"]
    cores = f"{machine['cores']} core{'s' if machine['cores'] > 1 else ''}"
    busy = found["load"][0] >= 0.5
    shared = f"Others used the machine at the same time (load {found['load'][0]:.1f} at the start). " if busy else ""
    lines = HEAD.format(cpu=machine["cpu"], cores=cores, jax=machine["versions"]["jax"], shared=shared).splitlines()
    for axis, points in found["points"].items():
        lines += _axis(axis, points)
    every = [p | {"axis": axis} for axis, points in found["points"].items() for p in points]
    return _written(lines + WHY.splitlines() + _model(every, machine), out)


def _axis(axis: str, points: list[dict[str, Any]]) -> list[str]:
    name = axis.partition(",")[0]
    lines = [f"## {axis[0].upper()}{axis[1:]}", ""]
    lines += [f"| {name} | s a round | s an evaluation | program's memory, MB | peak of the process, GB | building the data, s |"]
    lines += ["| ---: | ---: | ---: | ---: | ---: | ---: |"]
    for p in points:
        numbers = f"{p['seconds_round']:.3g} | {p['seconds_eval']:.3g} | {p['program_bytes'] / 1e6:.3g}"
        lines.append(f"| {p[name]:,} | {numbers} | {p['peak_bytes'] / 1e9:.2f} | {p['seconds_build']:.2f} |")
    lines.append("")
    told = ("clients", "participants", "samples", "parameters", "clusters")
    fixed = [f"{points[0][k]:,} {k}" for k in told if points[0][k] and k != name and all(p[k] == points[0][k] for p in points)]
    lines += [f"{points[0]['method']}, {', '.join(fixed)}.", ""]
    if name not in ("devices", "processes") and len(points) > 1:
        time, memory = (slope(points, name, q) for q in ("seconds_round", "program_bytes"))
        growth = f"as {name}^{time:.2f} and the program's memory as {name}^{memory:.2f}"
        lines += [f"From the first to the last point the time grows {growth}.", ""]
    elif len(points) > 1:
        first, last = (p["seconds_round"] / (p["participants"] or 1) for p in (points[0], points[-1]))
        lines += [f"A participant costs {last / first:.2f} times as much at the last point as at the first.", ""]
    return lines


def _model(points: list[dict[str, Any]], machine: dict[str, Any]) -> list[str]:
    prices, errors = fit(points)
    worst = [p for p in points if _counts(p)][int(errors.argmax())]
    where = f"{worst['axis']}: {worst[worst['axis'].partition(',')[0]]:,}"
    lines = ["## Where the cost goes", "", "Non-negative least squares on the points of FedAvg and IFCA on one device:", ""]
    lines += ["| part | seconds each | |", "| --- | ---: | --- |"]
    lines += [f"| {part} | {price:.3g} | {unit} |" for (part, unit), price in zip(PARTS.items(), prices, strict=True)]
    off = f"Half of the {len(errors)} points are met within {np.median(errors):.0%}, the worst ({where}) within {errors.max():.0%}."
    return [*lines, "", off, "", *_elsewhere(prices, machine)]


def _elsewhere(prices: np.ndarray, machine: dict[str, Any]) -> list[str]:
    """The model on machines that nobody measured."""
    lines = ELSEWHERE.format(share=f"{SHARE:.0%}").splitlines()
    for name, (chips, flops, memory, link) in MACHINES.items():
        lines.append(f"| {name} | {chips} | {flops / 1e12:.0f} | {memory / 1e12:.2f} | {link / 1e9:.0f} |")
    wide = {"participants": 10_000, "parameters": 1_000_000, "samples": 50, "clients": 1_000_000}
    lines += ["", "| seconds a round: 10,000 of 1,000,000 clients, 50 samples, 1,000,000 parameters | FedAvg | IFCA, 4 clusters |"]
    lines += ["| --- | ---: | ---: |"]
    rounds = [np.array(features(wide | {"clusters": clusters})) for clusters in (0, 4)]
    lines.append("| one core of this machine, by the model | " + " | ".join(f"{prices @ each:.3g}" for each in rounds) + " |")
    for name, (chips, flops, memory, link) in MACHINES.items():
        own = prices.copy()
        own[[5, 6]] *= machine["flops"] / (flops * SHARE) / chips
        own[[1, 2, 3, 4]] *= machine["copy_bytes_per_s"] / memory
        own[[2, 3]] /= chips
        own[4] += 2 * 4 / link
        lines.append(f"| {name} | " + " | ".join(f"{own @ each:.3g}" for each in rounds) + " |")
    return lines


def _written(lines: list[str], out: Path) -> str:
    page = "\n".join(lines) + "\n"
    (out / "scaling.md").write_text(page)
    return page


def _plot(every: dict[str, list[dict[str, Any]]], out: Path) -> None:
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
        place.loglog([p[name] for p in points], [p["seconds_round"] for p in points], "o-", label="processor seconds a round")
        place.loglog([p[name] for p in points], [p["program_bytes"] / 1e9 for p in points], "s--", label="program memory, GB")
        place.set(title=axis.replace(", each", ",\neach"), xlabel=name, ylim=(2e-4, 4))
        ticks = [p[name] for p in points]
        place.set_xticks(ticks, [f"{at:.0e}".replace("e+0", "e") if at > 999 else f"{at}" for at in ticks])
        place.minorticks_off()
        place.grid(True, alpha=0.3)
    axes.flat[0].legend()
    figure.tight_layout()
    figure.savefig(out / "scaling.svg", metadata={"Date": None})
    figure.savefig(out / "scaling.png", metadata={"Software": None})
    plt.close(figure)
