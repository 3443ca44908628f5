"""Enters: runs. Leaves: the columns that a table has only where they are asked for, because they
take time to compute."""

from __future__ import annotations

import dataclasses
import json
import math
import pkgutil
from collections.abc import Sequence

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation.common import labels_seen
from cfljax.lazy import jax, jnp
from cfljax.report.comparison import Column, list_columns
from cfljax.report.configurations import Unit
from cfljax.results import predict
from cfljax.results.models import KeptModels
from cfljax.store import QUANTITIES
from cfljax.store.quantities import score_of


def generalisation(run: KeptModels) -> float:
    """Return the mean over the clients that train of the accuracy that a client's model has on the
    test samples of the other clients of its true group, those that never train among them. A client
    that mixes models counts with the model of its largest weight. NaN if the run has not kept its
    models, and for methods that make a client's model when they score it."""
    models = run.models
    labels = run.labels
    if score_of(run.record) != "accuracy":
        return math.nan
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
    federation = host_federation(predict.read_run_alone(run.record)).at(last)
    known = np.asarray(federation.trains) & (labels >= 0)
    has_classes = not (federation.several or federation.continuous)
    if not has_classes or not 1 < len(np.unique(labels[known])) < known.sum():
        return math.nan
    counts = labels_seen(federation)[known]
    return float(
        silhouette_score(np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1), labels[known])
    )


def compute_generalisation(units: Sequence[Unit]) -> list[float]:
    """Compute `generalisation` of all runs; a SpecError if none has kept its models."""
    found = [generalisation(_read_kept(unit, "models", "labels")) for unit in units]
    if units and all(map(math.isnan, found)):
        raise SpecError(
            "--columns generalisation: needs models and true groups; compute the runs with "
            "--keep models"
        )
    return found


def compute_was(units: Sequence[Unit]) -> list[float]:
    """Compute `wasserstein_adjusted` of all runs."""
    return [wasserstein_adjusted(_read_kept(unit, "labels")) for unit in units]


def _read_kept(unit: Unit, *prefixes: str) -> KeptModels:
    return KeptModels(*unit.store.read(unit.id, prefixes))


def divide_bytes(units: Sequence[Unit]) -> list[float]:
    """Divide the bytes of all runs by FedAvg's."""
    return _divide_by_fedavg("bytes", units)


def divide_seconds(units: Sequence[Unit]) -> list[float]:
    """Divide the seconds of all runs by FedAvg's."""
    return _divide_by_fedavg("seconds", units)


def _divide_by_fedavg(name: str, units: Sequence[Unit]) -> list[float]:
    """Divide the quantity by FedAvg's with the same seed, data, model and training in the same
    folder; NaN without one."""
    value = QUANTITIES[name].value
    first = {
        _make_data_key(unit): value(unit.record)
        for unit in reversed(units)
        if unit.record["method"] == "fedavg"
    }
    return [value(unit.record) / (first.get(_make_data_key(unit)) or math.nan) for unit in units]


def _make_data_key(unit: Unit) -> str:
    same = [unit.record["config"].get(table) for table in ("data", "model", "train")]
    return json.dumps([str(unit.store.folder), unit.seed, *same], sort_keys=True)


def compute_columns(names: Sequence[str], units: Sequence[Unit]) -> list[Column]:
    """Return the columns that have to be asked for and are named, with their values for these
    runs."""
    done = [unit for unit in units if unit.status == "done"]
    return [
        _compute(column, done)
        for column in list_columns(asked=True)
        if column.ask and {*names} & {column.key, column.heading}
    ]


def _compute(column: Column, units: Sequence[Unit]) -> Column:
    """Return the column with its values for these runs."""
    values = pkgutil.resolve_name(column.ask)(units)
    found = dict(zip([(unit.store.folder, unit.id) for unit in units], values, strict=True))
    return dataclasses.replace(column, computed=lambda unit: found[unit.store.folder, unit.id])
