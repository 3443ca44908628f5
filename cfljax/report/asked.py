"""Enters: runs. Leaves: the columns that a table has only where they are asked for, because they take time to compute."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from cfljax.errors import SpecError
from cfljax.report.comparison import ASKED, Column, seconds, sum_bytes
from cfljax.report.configurations import Unit
from cfljax.results.models import KeptModels
from cfljax.results.scores import generalisation, wasserstein_adjusted

Values = Callable[[Sequence[Unit]], list[float]]


def _from_arrays(score: Callable[[KeptModels], float], prefixes: tuple[str, ...]) -> Values:
    return lambda units: [score(KeptModels(*unit.store.read(unit.id, prefixes))) for unit in units]


def _generalisation(units: Sequence[Unit]) -> list[float]:
    found = _from_arrays(generalisation, ("models", "labels"))(units)
    if units and all(map(math.isnan, found)):
        raise SpecError("--columns generalisation: needs models and true groups; compute the runs with --keep models")
    return found


def _over_fedavg(quantity: Callable[[Unit], float]) -> Values:
    """Divide the quantity by that of FedAvg with the same seed, data, model and training in the same folder; NaN without one."""

    def values(units: Sequence[Unit]) -> list[float]:
        keys = [
            json.dumps([str(u.store.folder), u.seed, *(u.record["config"].get(k) for k in _SAME)], sort_keys=True) for u in units
        ]
        pairs = list(zip(keys, units, strict=True))
        first = {key: quantity(unit) for key, unit in reversed(pairs) if unit.record["method"] == "fedavg"}
        return [quantity(unit) / (first.get(key) or math.nan) for key, unit in pairs]

    return values


_SAME = ("data", "model", "train")
_COMPUTED: dict[str, Values] = {
    "generalisation": _generalisation,
    "was": _from_arrays(wasserstein_adjusted, ("labels",)),
    "bytes_over_fedavg": _over_fedavg(sum_bytes),
    "seconds_over_fedavg": _over_fedavg(seconds),
}


def compute_columns(names: Sequence[str], units: Sequence[Unit]) -> list[Column]:
    """Return those of ASKED that are named, with their values for these runs."""
    done, columns = [unit for unit in units if unit.status == "done"], []
    for column in ASKED:
        if {*names} & {column.key, column.heading}:
            keys = [(unit.store.folder, unit.id) for unit in done]
            found = dict(zip(keys, _COMPUTED[column.key](done), strict=True))
            columns.append(column._replace(value=functools.partial(_look_up, found)))
    return columns


def _look_up(found: dict[tuple[Path, str], float], unit: Unit) -> float:
    return found[unit.store.folder, unit.id]
