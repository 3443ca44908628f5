"""Enters: records of settings. Leaves: what each method has there, beside FedAvg."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cfljax.registry.options import Table
from cfljax.report.comparison import Seeds
from cfljax.report.over_settings import OverSettings, compare_runs
from cfljax.results.statistics import interval
from experiments.board.settings import Setting, find_setting

BASE = "fedavg"


class Played(NamedTuple):
    """A setting with its record."""

    setting: Setting
    record: Table

    def list_runs(self, method: str) -> list[Table]:
        """List the runs of a method; none if it cannot play the setting, or lost a run."""
        runs = [run for run in self.record["runs"] if run["method"] == method]
        whole = [run for run in runs if run["status"] == "done" and run["accuracy"] is not None]
        return whole if len(whole) == len(self.setting.seeds) else []

    def map_accuracies(self, method: str) -> Seeds:
        """Map the seeds of a method to the accuracies."""
        return {(run["seed"], 0): run["accuracy"] for run in self.list_runs(method)}


class Gain(NamedTuple):
    """How far a method is ahead of FedAvg on some settings."""

    # Fractions: the mean over settings and seeds, and its 95 % interval over the seeds
    mean: float
    interval: tuple[float, float] | None
    settings: int


def format_points(gain: float) -> str:
    """Write a difference of accuracies in points."""
    return f"{100 * gain:+.1f}".replace("-", "−")


def match_records(records: Sequence[Table], tier: str) -> list[Played]:
    """Return the settings of a tier that have been played."""
    played = [Played(find_setting(record["setting"]), record) for record in records]
    return [each for each in played if each.setting.tier == tier]


def measure_gain(played: Sequence[Played], method: str) -> Gain | None:
    """Measure a method on those of the settings that it has played; None if there are none."""
    differences = []
    for each in played:
        own, base = each.map_accuracies(method), each.map_accuracies(BASE)
        if own and base:
            differences.append([own[seed] - base[seed] for seed in sorted(base)])
    if not differences:
        return None
    # Runs of one seed share what it draws
    by_seed = [float(value) for value in np.mean(differences, axis=0)]
    return Gain(math.fsum(by_seed) / len(by_seed), interval(by_seed), len(differences))


def measure_cost(played: Sequence[Played], method: str, quantity: str) -> float | None:
    """Return how many times FedAvg's bytes or seconds a method takes, the geometric mean over the
    settings that it has played."""
    ratios = []
    for each in played:
        own = [_read_cost(run, quantity) for run in each.list_runs(method)]
        base = [_read_cost(run, quantity) for run in each.list_runs(BASE)]
        if own and base and math.fsum(base):
            ratios.append(math.fsum(own) / math.fsum(base))
    if not ratios:
        return None
    # A method that sends nothing
    return 0.0 if min(ratios) == 0 else float(np.exp(np.mean(np.log(ratios))))


def _read_cost(run: Table, quantity: str) -> float:
    names = ("bytes_up", "bytes_down") if quantity == "bytes" else (quantity,)
    return math.fsum(run[name] or 0.0 for name in names)


def compare_everywhere(played: Sequence[Played], methods: Sequence[str]) -> OverSettings | None:
    """Compare the methods that have played all settings; None for fewer than two settings, or
    methods."""
    runs = {method: [each.map_accuracies(method) for each in played] for method in methods}
    whole = {method: each for method, each in runs.items() if all(each)}
    return compare_runs(whole) if len(played) > 1 and len(whole) > 1 else None
