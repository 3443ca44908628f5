"""Scores of a finished run that are computed when they are asked for: from its models, its clusters and its data."""

from __future__ import annotations

import math

import numpy as np

from cfljax.federation.common import labels_seen
from cfljax.lazy import jax, jnp
from cfljax.results import predict
from cfljax.results.models import KeptModels


def generalisation(run: KeptModels) -> float:
    """Return the mean over the clients that train of the accuracy that a client's model has on the test samples of the other
    clients of its true group, those that never train among them. A client that mixes models counts with the model of its largest
    weight. NaN if the run has not kept its models, and for methods that make a client's model when they score it."""
    models, labels = run.models, run.labels
    if models is None or labels is None or (scene := predict.scene_of(run.record)).adapts:
        return math.nan
    from cfljax.engine.scoring import score

    federation = scene.federation
    group, test = np.asarray(federation.group), federation.test
    count = np.where(np.asarray(federation.real), np.asarray(test.count), 0)
    own = np.where(np.asarray(federation.trains) & (group >= 0), labels if len(models) > 1 else 0, -1)
    first = jnp.zeros(len(own), jnp.int32)
    correct_of = jax.jit(lambda model, who: score(scene.model, federation, test, model[None], first, who).correct)
    found = [np.zeros(0)]
    for cluster, of in np.unique(np.stack([own, group], 1)[own >= 0], axis=0):
        correct = np.asarray(correct_of(models[cluster], group == of), np.float64)
        mine = (own == cluster) & (group == of)
        others = count[group == of].sum() - count[mine]
        found.append(((correct.sum() - correct[mine]) / np.maximum(others, 1))[others > 0])
    every = np.concatenate(found)
    return float(every.mean()) if len(every) else math.nan


def wasserstein_adjusted(run: KeptModels) -> float:
    """Return FedGWC's Wasserstein Adjusted Score: the silhouette of the clusters at the end, where the distance of two clients is
    the Euclidean one of their class frequencies in the training samples, as they see the labels, each sorted. NaN with one
    cluster, or as many as clients."""
    from sklearn.metrics import silhouette_score

    from cfljax.experiment.federations import host_federation

    labels = run.labels
    if labels is None:
        return math.nan
    last = int(run.record["summary"].get("rounds") or 0)
    federation = host_federation(predict.run_of(run.record)).at(last)
    known = np.asarray(federation.trains) & (labels >= 0)
    if federation.several or not 1 < len(np.unique(labels[known])) < known.sum():
        return math.nan
    counts = labels_seen(federation)[known]
    return float(silhouette_score(np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1), labels[known]))
