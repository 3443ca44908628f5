"""Enters: configurations. Leaves: the same, with what each run had spent when it was as accurate as
FedAvg, the cost that tables have by default."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cfljax.report.comparison import headline_of
from cfljax.report.configurations import Configuration, Unit
from cfljax.report.curves import read
from cfljax.results.statistics import mean_and_deviation
from cfljax.store.quantities import score_of
from cfljax.store.summary import RunCurves

# Data (the block of a configuration) -> seed -> the accuracy that FedAvg has with it
Levels = dict[str, dict[int, float]]


def find_levels(configurations: Sequence[Configuration]) -> Levels:
    """Find the accuracy by which FedAvg is compared, of each seed on each data set. If there are
    several settings of FedAvg on the same data, the one with the highest mean counts."""
    value = headline_of(configurations).of
    best: dict[str, tuple[float, dict[int, float]]] = {}
    for each in configurations:
        if each.method != "fedavg":
            continue
        done = {unit.seed: value(unit) for unit in each.by_status("done")}
        known = {seed: level for seed, level in done.items() if math.isfinite(level)}
        mean = mean_and_deviation(list(known.values()))[0] if known else -math.inf
        if known and mean > best.get(each.block, (-math.inf, {}))[0]:
            best[each.block] = (mean, known)
    return {block: known for block, (_, known) in best.items()}


def count_to_fedavg(configurations: Sequence[Configuration], levels: Levels) -> list[Configuration]:
    """Count the rounds and bytes of each run until FedAvg's accuracy with the same seed. Without
    other methods there is nothing to count."""
    if all(each.method == "fedavg" for each in configurations):
        return list(configurations)
    return [
        each._replace(units=[_count(unit, levels.get(each.block, {})) for unit in each.units])
        for each in configurations
    ]


def _count(unit: Unit, levels: dict[int, float]) -> Unit:
    """Add the counts to the summary of a run; None if it has not been as accurate."""
    if unit.status != "done" or unit.seed not in levels:
        return unit
    # Damaged files are told of where curves are read
    arrays = read(unit, ("history/",), []) or {}
    history = {name.removeprefix("history/"): np.asarray(each) for name, each in arrays.items()}
    curves = RunCurves(history, target=levels[unit.seed], score=score_of(unit.record))
    counted = {
        "round_to_fedavg": curves.count_at_target("round"),
        "bytes_to_fedavg": curves.count_at_target("bytes"),
    }
    summary = unit.record["summary"] | counted
    return unit._replace(record=unit.record | {"summary": summary})
