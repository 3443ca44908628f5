"""Enters: runs. Leaves: the columns that a table has only where they are asked for, because they take time to compute."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from cfljax.errors import SpecError
from cfljax.report.comparison import MORE, Column, seconds, sum_bytes
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
        first = {_alike(unit): quantity(unit) for unit in reversed(units) if unit.record["method"] == "fedavg"}
        return [quantity(unit) / (first.get(_alike(unit)) or math.nan) for unit in units]

    return values


def _alike(unit: Unit) -> str:
    same = [unit.record["config"].get(table) for table in ("data", "model", "train")]
    return json.dumps([str(unit.store.folder), unit.seed, *same], sort_keys=True)


_COMPUTED: dict[str, Values] = {
    "generalisation": _generalisation,
    "was": _from_arrays(wasserstein_adjusted, ("labels",)),
    "bytes_over_fedavg": _over_fedavg(sum_bytes),
    "seconds_over_fedavg": _over_fedavg(seconds),
}


def compute_columns(names: Sequence[str], units: Sequence[Unit]) -> list[Column]:
    """Return those of MORE that are named, with their values for these runs."""
    done = [unit for unit in units if unit.status == "done"]
    return [_compute(column, done) for column in MORE if {*names} & {column.key, column.heading}]


def _compute(column: Column, units: Sequence[Unit]) -> Column:
    found = dict(zip([(unit.store.folder, unit.id) for unit in units], _COMPUTED[column.key](units), strict=True))
    return column._replace(value=lambda unit: found[unit.store.folder, unit.id])
