"""What newcomers get at the end of a run: each is placed by the method and scored, and scored again after some steps of training on
its few labelled samples. They have taken part in no round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.devices.placement import placed
from cfljax.devices.spread import everywhere
from cfljax.engine import groups, metrics
from cfljax.engine.compiled import Source, compiled
from cfljax.engine.groups import Group
from cfljax.engine.program import over_runs
from cfljax.engine.scoring import Scores, least_loss_among, score, score_mixtures
from cfljax.engine.settings import Assembled
from cfljax.engine.simulation import fetched
from cfljax.local.schedule import Work
from cfljax.types import Array, Federation, Hyper, Jobs, Method, Tree
from cfljax.types.federation import NEVER


class Placed(NamedTuple):
    """Newcomers in the models of a method."""

    models: Array
    """f32[K, d]."""
    which: Array
    """i32[n]: the model of each; with a mixture that of the largest weight."""
    mixture: Array | None
    """f32[n, K], for methods whose clients mix models."""


def make_newcomers(parts: Assembled) -> Callable[..., dict[str, Array]]:
    """The program of one run: (key, state, hyper, federation) -> `place` i32[n], and for each of E numbers of steps `correct`
    f32[E, n] of `samples` i32[n] test samples."""
    assert parts.newcomers is not None
    solver, steps = parts.newcomers.solver, parts.newcomers.steps
    ids, sequential = jnp.asarray(parts.newcomers.ids, jnp.int32), parts.settings.sequential

    def scored(federation: Federation, models: Array, which: Array) -> Scores:
        return score(parts.model, federation, federation.test, models, which, federation.real, sequential)

    def end(key: Array, state: Tree, hyper: Hyper, federation: Federation) -> dict[str, Array]:
        there = dataclasses.replace(federation, arrive=jnp.where(federation.arrive == NEVER, 0, federation.arrive))
        at, own = _place(parts, state, hyper, there, ids), there.take(ids)
        mine = jnp.arange(ids.shape[0], dtype=jnp.int32)
        jobs = Jobs(mine, own.real, jnp.ones(ids.shape[0]), at.models, at.which)
        found = []
        for number in steps:
            if number:
                work = Work(None, number, solver.work.batch)
                moved = solver.with_work(work).train(keys.fold(key, "newcomers"), own, jobs, hyper).delta
                found.append(scored(own, at.models[at.which] + moved, mine))
            elif at.mixture is None:
                found.append(scored(own, at.models, at.which))
            else:
                who = (own.test, at.models, at.mixture, own.real)
                found.append(score_mixtures(parts.model, own, *who, sequential))
        return {"place": at.which, "correct": jnp.stack([each.correct for each in found]), "samples": found[0].samples}

    return end


def _place(parts: Assembled, state: Tree, hyper: Hyper, federation: Federation, ids: Array) -> Placed:
    """The newcomers i32[n] where the method puts them: by its mixture or its `score`, by the label that they have, else by
    the least loss on their labelled samples among the models in use."""
    method: Method = parts.method
    models, labels = method.models(state)
    if method.adapt is not None:
        models = method.adapt(state, federation, hyper)
    if method.mixture is not None:
        mixture = method.mixture(state, federation, hyper)[ids]
        return Placed(models, jnp.argmax(mixture, axis=1).astype(jnp.int32), mixture)
    which = (labels if method.score is None else method.score(state, federation, hyper))[ids]
    if method.chooses and models.shape[0] > 1:
        others = jnp.ones(labels.shape, bool).at[ids].set(False) & (labels >= 0)
        in_use = jnp.zeros(models.shape[0], bool).at[jnp.where(others, labels, models.shape[0])].set(True, mode="drop")
        own, without = federation.take(ids), which < 0
        candidates = in_use | ~jnp.any(in_use)
        best = least_loss_among(parts.model, own, own.train, models, candidates, without, parts.settings.sequential)
        which = jnp.where(without, best, which)
    return Placed(models, jnp.maximum(which, 0), None)


def scores_of_newcomers(
    parts: Assembled, whole: Group, state: Tree, federation: Federation
) -> tuple[list[dict[str, float]], float]:
    """HOST. (`accuracy_new_<steps>` and `ari_new` of each run, seconds of compiling), from the state of all runs at their end (on
    the host). `federation`: as it lies on the devices."""
    if parts.newcomers is None:
        return [{}] * whole.keys.shape[0], 0.0
    runs, mesh, settings = whole.keys.shape[0], parts.mesh, parts.settings
    size, ids, arguments = groups.width(parts, runs), list(parts.newcomers.ids), (whole.keys, state, whole.hyper)
    forms = (*groups.forms(groups.with_runs(arguments, size), mesh, True), groups.forms(federation, mesh, False))
    name = None if parts.program_key is None else (parts.program_key, parts.plan, settings, "newcomers", *parts.newcomers[:2])
    f = everywhere(over_runs(make_newcomers(parts), settings, 3), mesh, 3)
    (program,), seconds = compiled([Source(f, forms, name, mesh)])
    found: list[dict[str, float]] = []
    group = np.asarray(parts.federation.group)[ids]
    for at in range(0, runs, size):
        scored = fetched(program(*placed(groups.part(arguments, at, size), mesh, True), federation))
        for r in range(size):
            of_run = {name: each[r] for name, each in scored.items()}
            found.append(_summary(of_run, parts.newcomers.steps, group, parts.federation.groups))
    return found, seconds


def _summary(scored: dict[str, np.ndarray], steps: tuple[int, ...], group: np.ndarray, groups: int) -> dict[str, float]:
    found = {
        f"accuracy_new_{number}": float(metrics.share_correct(correct, scored["samples"]))
        for number, correct in zip(steps, scored["correct"], strict=True)
    }
    place = scored["place"]
    return found | {"ari_new": float(metrics.clustering(place, group, int(place.max()) + 1, groups).ari)}
