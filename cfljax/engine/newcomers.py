"""Newcomers at the end of a run: each is placed by the method and scored, and scored again after some steps of training on
its few labelled samples. They have taken part in no round."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.engine import metrics
from cfljax.engine.afterwards import Found, Placed, Stage, score_at_end
from cfljax.engine.groups import Group
from cfljax.engine.scoring import least_loss_among
from cfljax.engine.settings import Assembled
from cfljax.lazy import jnp
from cfljax.local.optimiser import decay_rate
from cfljax.types import Array, Federation, Hyper, Method, Tree
from cfljax.types.federation import NEVER


def place(parts: Assembled, state: Tree, hyper: Hyper, rounds: Array, federation: Federation) -> Stage:
    """Return all clients after the rounds, on the axis of all clients, with newcomers where the method places them."""
    there = dataclasses.replace(federation, arrive=jnp.where(federation.arrive == NEVER, 0, federation.arrive))
    return Stage(there, there.test, there.real, _place_clients(parts, state, decay_rate(hyper, rounds), there))


def _place_clients(parts: Assembled, state: Tree, hyper: Hyper, federation: Federation) -> Placed:
    """Place newcomers as the method does, on the axis of all clients: by its mixture or its `score`, by their label, otherwise by
    the least loss on their labelled samples among the models in use."""
    assert parts.newcomers is not None
    method: Method = parts.method
    ids = jnp.asarray(parts.newcomers.ids, jnp.int32)
    models, labels = method.models(state)
    if method.adapt is not None:
        models = method.adapt(state, federation, hyper)
    if method.mixture is not None:
        mixture = method.mixture(state, federation, hyper)
        return Placed(models, jnp.argmax(mixture, axis=1).astype(jnp.int32), mixture)
    which = labels if method.score is None or method.newcomers_choose else method.score(state, federation, hyper)
    if method.chooses and models.shape[0] > 1:
        new = jnp.zeros(labels.shape, bool).at[ids].set(True)
        of_others = jnp.where((labels >= 0) & ~new, labels, models.shape[0])
        in_use = jnp.zeros(models.shape[0], bool).at[of_others].set(True, mode="drop")
        candidates, without = in_use | ~jnp.any(in_use), new & (which < 0)
        train = federation.train
        best = least_loss_among(parts.model, federation, train, models, candidates, without, parts.settings.sequential)
        which = jnp.where(without, best, which)
    return Placed(models, jnp.maximum(which, 0), None)


def score_newcomers(
    parts: Assembled, whole: Group, state: Tree, rounds: np.ndarray, federation: Federation
) -> tuple[list[dict[str, float]], float]:
    """HOST. Return (`accuracy_new_<steps>` and `ari_new` of each run; seconds of compiling). Arguments as for `score_at_end`."""
    if parts.newcomers is None:
        return [{}] * whole.keys.shape[0], 0.0
    found, seconds = score_at_end(parts, parts.newcomers, "newcomers", place, whole, state, rounds, federation)
    ids, summaries = list(parts.newcomers.ids), []
    for each, last in zip(found, rounds, strict=True):
        group = np.asarray(parts.federation.at(int(last)).group)[ids]
        summaries.append(_summary(each, parts.newcomers.steps, group, parts.federation.groups))
    return summaries, seconds


def _summary(scored: Found, steps: tuple[int, ...], group: np.ndarray, groups: int) -> dict[str, float]:
    found = {
        f"accuracy_new_{number}": float(metrics.per_sample(correct, scored["samples"]))
        for number, correct in zip(steps, scored["correct"].T, strict=True)
    }
    place = scored["place"]
    return found | {"ari_new": float(metrics.score_clustering(place, group, int(place.max()) + 1, groups).ari)}
