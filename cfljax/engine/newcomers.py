"""What newcomers get at the end of a run: each is placed by the method and scored, and scored again after some steps of training on
its few labelled samples. They have taken part in no round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.devices.placement import placed
from cfljax.devices.spread import everywhere
from cfljax.engine import groups, metrics
from cfljax.engine.compiled import Source, compiled
from cfljax.engine.groups import Group
from cfljax.engine.program import decayed, in_round, over_runs
from cfljax.engine.scoring import least_loss_among, score, score_mixtures
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
    """i32[C]: the model of each; with a mixture that of the largest weight."""
    mixture: Array | None
    """f32[C, K], for methods whose clients mix models."""


def make_newcomers(parts: Assembled) -> Callable[..., dict[str, Array]]:
    """The program of one run: (key, state, hyper, rounds i32[], federation) -> `place` i32[n], and for each of E numbers of steps
    `correct` f32[n, E] of `samples` i32[n] test samples. `rounds`: how many the run has done."""
    assert parts.newcomers is not None
    everybody = np.array(parts.newcomers.ids, np.int32)
    number, width = len(everybody), at_once(parts)
    blocks = jnp.asarray(np.resize(everybody, (-(-number // width), width)))
    real = jnp.arange(blocks.size).reshape(blocks.shape) < number

    def end(key: Array, state: Tree, hyper: Hyper, rounds: Array, federation: Federation) -> dict[str, Array]:
        state, federation = in_round(parts.method, state, federation, rounds)
        there = dataclasses.replace(federation, arrive=jnp.where(federation.arrive == NEVER, 0, federation.arrive))
        at = _place(parts, state, decayed(hyper, rounds), there)

        def one(block: tuple[Array, Array]) -> tuple[Array, Array]:
            ids, mask = block
            own = there.take(ids)
            own = dataclasses.replace(own, uid=jnp.where(mask, own.uid, -1))
            mixture = None if at.mixture is None else at.mixture[ids]
            return _scored(parts, key, own, at._replace(which=at.which[ids], mixture=mixture), hyper)

        found = jax.lax.map(one, (blocks, real))
        correct, samples = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:])[:number], found)
        return {"place": at.which[everybody], "correct": correct, "samples": samples}

    return end


def at_once(parts: Assembled) -> int:
    """How many newcomers train at a time: no more than participants of a round, whose memory they then have."""
    assert parts.newcomers is not None
    return max(1, min(len(parts.newcomers.ids), parts.plan.stream or parts.settings.participants))


def _scored(parts: Assembled, key: Array, own: Federation, at: Placed, hyper: Hyper) -> tuple[Array, Array]:
    """(correct f32[n, E], test samples i32[n]) of the newcomers, who are the clients of the federation `own`."""
    assert parts.newcomers is not None
    solver, found = parts.newcomers.solver, []
    who, sequential = own.real, parts.settings.sequential
    mine = jnp.arange(own.clients, dtype=jnp.int32)
    jobs = Jobs(mine, who, jnp.ones(own.clients), at.models, at.which)
    for number in parts.newcomers.steps:
        models, which = at.models, at.which
        if not number and at.mixture is not None:
            found.append(score_mixtures(parts.model, own, own.test, models, at.mixture, who, sequential))
            continue
        if number:
            trained = solver.with_work(Work(None, number, solver.work.batch))
            models, which = models[which] + trained.train(keys.fold(key, "newcomers"), own, jobs, hyper).delta, mine
        found.append(score(parts.model, own, own.test, models, which, who, sequential))
    return jnp.stack([each.correct for each in found], axis=1), found[0].samples


def _place(parts: Assembled, state: Tree, hyper: Hyper, federation: Federation) -> Placed:
    """Where the method puts newcomers, on the axis of all clients: by its mixture or its `score`, by the label that they have, else
    by the least loss on their labelled samples among the models in use."""
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


def scores_of_newcomers(
    parts: Assembled, whole: Group, state: Tree, rounds: np.ndarray, federation: Federation
) -> tuple[list[dict[str, float]], float]:
    """HOST. (`accuracy_new_<steps>` and `ari_new` of each run, seconds of compiling), from the state of all runs at their end (on
    the host), which each reached after `rounds` i64[R]. `federation`: as it lies on the devices."""
    if parts.newcomers is None:
        return [{}] * whole.keys.shape[0], 0.0
    runs, mesh, settings = whole.keys.shape[0], parts.mesh, parts.settings
    size, ids = groups.width(parts, runs), list(parts.newcomers.ids)
    arguments = (whole.keys, state, whole.hyper, rounds.astype(np.int32))
    forms = (*groups.forms(groups.with_runs(arguments, size), mesh, True), groups.forms(federation, mesh, False))
    name = None if parts.program_key is None else (parts.program_key, parts.plan, settings, "newcomers", *parts.newcomers[:2])
    f = everywhere(over_runs(make_newcomers(parts), settings, 4), mesh, 4)
    (program,), seconds = compiled([Source(f, forms, name, mesh)])
    found: list[dict[str, float]] = []
    for at in range(0, runs, size):
        scored = fetched(program(*placed(groups.part(arguments, at, size), mesh, True), federation))
        for r in range(size):
            of_run = {name: each[r] for name, each in scored.items()}
            group = np.asarray(parts.federation.at(int(rounds[at + r])).group)[ids]
            found.append(_summary(of_run, parts.newcomers.steps, group, parts.federation.groups))
    return found, seconds


def _summary(scored: dict[str, np.ndarray], steps: tuple[int, ...], group: np.ndarray, groups: int) -> dict[str, float]:
    found = {
        f"accuracy_new_{number}": float(metrics.share_correct(correct, scored["samples"]))
        for number, correct in zip(steps, scored["correct"].T, strict=True)
    }
    place = scored["place"]
    return found | {"ari_new": float(metrics.clustering(place, group, int(place.max()) + 1, groups).ari)}
