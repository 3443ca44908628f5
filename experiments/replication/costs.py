"""Enters: the runs of two cells that count rounds to a target. Leaves: what getting there costs in
bytes and in seconds."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from cfljax.report.configurations import Unit
from cfljax.results.result import Result
from experiments.replication.numbers import fewer, plain
from experiments.replication.quantity import Quantity


class Cost(NamedTuple):
    """What a run has cost when it reaches the target."""

    moved: float
    """Bytes, down and up together, in the simulated network."""
    seconds: float
    """The share of the run's computing time that its rounds until then are of all its rounds."""


def draw_of(unit: Unit) -> tuple[int, str]:
    """Return what a run draws: its seed, and its data's seed, which is the seed of the run if the
    spec says so."""
    data = (unit.record["config"].get("data") or {}).get("seed", 0)
    return unit.seed, str(unit.seed if data == "run" else data)


def at_target(runs: list[Unit], take: Quantity) -> dict[Hashable, Cost]:
    """Return the cost of each draw whose run reaches the target."""
    found: dict[Hashable, Cost] = {}
    for unit in runs:
        run = Result(*unit.store.read(unit.id))
        reached = take.of(run)
        if math.isfinite(reached):
            rounds = run.history["round"]
            at = int(np.flatnonzero(rounds == reached)[0])
            spent = sum(
                value for name, value in unit.record["timings"].items() if name in ("train", "eval")
            )
            moved = float(run.history["bytes_down"][at] + run.history["bytes_up"][at])
            found[draw_of(unit)] = Cost(moved, spent * reached / float(rounds[-1]))
    return found


def costs(fast: dict[Hashable, Cost], slow: dict[Hashable, Cost]) -> str:
    """Return how many bytes and seconds the first needs beside the second, over the draws in which
    both get there."""
    common = [draw for draw in fast if draw in slow]
    if not common:
        return ""
    said = []
    for name, word in (("moved", "bytes"), ("seconds", "seconds")):
        ratios = [
            getattr(fast[draw], name) / max(getattr(slow[draw], name), 1e-12) for draw in common
        ]
        ratio = float(np.median(ratios))
        if ratio > 0:
            said.append(
                f"{plain(ratio)} times the {word}"
                if ratio >= 1.005
                else f"{fewer(1 - ratio, 'fewer')} {word}"
            )
    return f"to the target: {', '.join(said)}" if said else ""
