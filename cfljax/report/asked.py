"""Enters: runs. Leaves: the columns that a table has only where they are asked for, because they
take time to compute."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation.common import labels_seen
from cfljax.lazy import jax, jnp
from cfljax.report.comparison import COLUMNS_ON_REQUEST, Column, seconds, sum_bytes
from cfljax.report.configurations import Unit
from cfljax.results import predict
from cfljax.results.models import KeptModels


def generalisation(run: KeptModels) -> float:
    """Return the mean over the clients that train of the accuracy that a client's model has on the
    test samples of the other clients of its true group, those that never train among them. A client
    that mixes models counts with the model of its largest weight. NaN if the run has not kept its
    models, and for methods that make a client's model when they score it."""
    models = run.models
    labels = run.labels
    if models is None or labels is None or (scene := predict.rebuild_run(run.record)).adapts:
        return math.nan
    from cfljax.engine.scoring import score

    federation = scene.federation
    group = np.asarray(federation.group)
    test = federation.test
    count = np.where(np.asarray(federation.real), np.asarray(test.count), 0)
    own = np.where(
        np.asarray(federation.trains) & (group >= 0), labels if len(models) > 1 else 0, -1
    )
    first = jnp.zeros(len(own), jnp.int32)
    correct_of = jax.jit(
        lambda model, who: score(scene.model, federation, test, model[None], first, who).correct
    )
    found = [np.zeros(0)]
    for cluster, of in np.unique(np.stack([own, group], 1)[own >= 0], axis=0):
        correct = np.asarray(correct_of(models[cluster], group == of), np.float64)
        mine = (own == cluster) & (group == of)
        others = count[group == of].sum() - count[mine]
        found.append(((correct.sum() - correct[mine]) / np.maximum(others, 1))[others > 0])
    every = np.concatenate(found)
    return float(every.mean()) if len(every) else math.nan


def wasserstein_adjusted(run: KeptModels) -> float:
    """Return FedGWC's Wasserstein Adjusted Score: the silhouette of the clusters at the end, where
    the distance of two clients is the Euclidean one of their class frequencies in the training
    samples, as they see the labels, each sorted. NaN with one cluster, or as many as clients."""
    from sklearn.metrics import silhouette_score

    from cfljax.experiment.federations import host_federation

    labels = run.labels
    if labels is None:
        return math.nan
    last = int(run.record["summary"].get("rounds") or 0)
    federation = host_federation(predict.read_run(run.record)).at(last)
    known = np.asarray(federation.trains) & (labels >= 0)
    if federation.several or not 1 < len(np.unique(labels[known])) < known.sum():
        return math.nan
    counts = labels_seen(federation)[known]
    return float(
        silhouette_score(np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1), labels[known])
    )


Values = Callable[[Sequence[Unit]], list[float]]


def _score_kept_models(score: Callable[[KeptModels], float], prefixes: tuple[str, ...]) -> Values:
    return lambda units: [score(KeptModels(*unit.store.read(unit.id, prefixes))) for unit in units]


def _compute_generalisation(units: Sequence[Unit]) -> list[float]:
    """Compute `generalisation` of all runs; a SpecError if none has kept its models."""
    found = _score_kept_models(generalisation, ("models", "labels"))(units)
    if units and all(map(math.isnan, found)):
        raise SpecError(
            "--columns generalisation: needs models and true groups; compute the runs with "
            "--keep models"
        )
    return found


def _divide_by_fedavg(quantity: Callable[[Unit], float]) -> Values:
    """Divide the quantity by FedAvg's with the same seed, data, model and training in the same
    folder; NaN without one."""

    def values(units: Sequence[Unit]) -> list[float]:
        first = {
            _make_data_key(unit): quantity(unit)
            for unit in reversed(units)
            if unit.record["method"] == "fedavg"
        }
        return [quantity(unit) / (first.get(_make_data_key(unit)) or math.nan) for unit in units]

    return values


def _make_data_key(unit: Unit) -> str:
    same = [unit.record["config"].get(table) for table in ("data", "model", "train")]
    return json.dumps([str(unit.store.folder), unit.seed, *same], sort_keys=True)


_COMPUTED: dict[str, Values] = {
    "generalisation": _compute_generalisation,
    "was": _score_kept_models(wasserstein_adjusted, ("labels",)),
    "bytes_over_fedavg": _divide_by_fedavg(sum_bytes),
    "seconds_over_fedavg": _divide_by_fedavg(seconds),
}


def compute_columns(names: Sequence[str], units: Sequence[Unit]) -> list[Column]:
    """Return the columns of COLUMNS_ON_REQUEST that are named, with their values for these runs."""
    done = [unit for unit in units if unit.status == "done"]
    return [
        _compute(column, done)
        for column in COLUMNS_ON_REQUEST
        if {*names} & {column.key, column.heading}
    ]


def _compute(column: Column, units: Sequence[Unit]) -> Column:
    """Return the column with its values for these runs."""
    found = dict(
        zip(
            [(unit.store.folder, unit.id) for unit in units],
            _COMPUTED[column.key](units),
            strict=True,
        )
    )
    return column._replace(value=lambda unit: found[unit.store.folder, unit.id])
