"""A round of training whose updates are summed into the clusters' models: all at once, or (`Plan.stream`) block after block of
participants, so that memory holds a block and the clusters, not a model per participant."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax.devices.spread import AXIS, Dealt, alone, deal_out, in_own_blocks
from cfljax.kernels.mix import Mixed, Rule, move_by, replace_by, sum_by, usable, weights_by, with_noise
from cfljax.kernels.sketch import sketch
from cfljax.local.solver import Solver, owners_of
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Plan, Traffic, Updates

SHORT = 256
"""Numbers that a participant's update is kept as while blocks pass: the discrepancy is then known to about 4 % (1/√512)."""


class Kept(NamedTuple):
    """What is kept of each participant's update."""

    loss: Array
    """f32[S]: mean training loss."""
    finite: Array
    """bool[S]."""
    norm: Array
    """f32[S]."""
    moves: Array
    """f32[S, d] the updates, or f32[S, SHORT] sketches of them. Of several devices, each has those of its own participants."""


class Mixing(NamedTuple):
    """How the updates of a round move the clusters' models."""

    mix: Array
    """f32[K, S]: the models move by `mix @ updates`."""
    models: Array
    """f32[K, d]: the models that move."""
    members: Array | None = None
    """f32[K, S]: how the participants' momentum buffers are averaged; None: clusters have no buffers."""
    velocity: Array | None = None
    """f32[K, d]: the clusters' buffers."""

    def take(self, which: Array) -> Mixing:
        """The columns of these participants i32[n]; zeros where −1 stands for a free place."""
        columns = lambda matrix: jnp.where(which >= 0, matrix[:, which], 0.0)  # noqa: E731
        return self._replace(mix=columns(self.mix), members=None if self.members is None else columns(self.members))


class Trained(NamedTuple):
    """A round of training."""

    mixed: Mixed
    """The clusters' models, moved."""
    velocity: Array | None
    """f32[K, d]: the clusters' momentum buffers, where they have such."""
    kept: Kept
    dealt: Dealt | None
    """To which devices the participants were dealt, whose moves are kept there; None: all moves are here."""
    plan: Plan


Sums = tuple[Array, Array | None]
"""(mix @ updates f32[K, d], members @ buffers f32[K, d] or None) over a part of the participants."""
Part = Callable[[Jobs, Mixing], tuple[Sums, Kept]]
"""Trains a part of the participants."""


def jobs_from(
    cohort: Cohort,
    start: Array,
    which: Array | None,
    anchor: Array | None = None,
    anchor_of: Array | None = None,
    velocity: Array | None = None,
    weights: Array | None = None,
) -> Jobs:
    """Local training of the cohort: participant s starts from `start[which[s]]`, or from the model that it picks (None)."""
    return Jobs(cohort.ids, cohort.mask, cohort.work, start, which, anchor, anchor_of, velocity, weights)


def sizes(federation: Federation, cohort: Cohort) -> Array:
    """f32[S]: n_i of the participants."""
    return federation.train.count[cohort.ids].astype(jnp.float32)


def train_and_mix(
    solver: Solver, key: Array, federation: Federation, jobs: Jobs, hyper: Hyper, mixing: Mixing, short: int | None = None
) -> Trained:
    """Local training of the jobs, and the clusters' models moved by it. `short`: keep sketches of that many numbers of the updates,
    for methods that compare them."""
    rule, stream = solver.rule(key, hyper), solver.plan.stream
    if rule.statistic and stream:
        raise ValueError("a robust rule needs all updates at once: no Plan.stream")
    costs = solver.costs(federation, jobs)
    dealt = None if rule.statistic else deal_out(costs, solver.plan, owners_of(federation, jobs))
    order = None  # of blocks whose clients wait for each other: those of about equal work together
    if dealt is None and 0 < stream < jobs.client.shape[0] and not solver.sequential:
        order = jnp.argsort(-costs)
    here = order if dealt is None else dealt.jobs
    some, shares = (jobs, mixing) if here is None else (jobs.take(here), mixing.take(here))
    in_blocks = 0 < stream < some.client.shape[0]
    size = short or (SHORT if in_blocks else None)

    def part(jobs: Jobs, mixing: Mixing) -> tuple[Sums, Kept]:
        return _part(rule, solver.fit(key, federation, jobs, hyper), mixing, size)

    with contextlib.nullcontext() if rule.statistic else alone():
        if dealt is not None and dealt.number is not None:
            blocks = dealt._replace(block=stream) if in_blocks else dealt
            sums, kept = in_own_blocks(lambda which: part(jobs.take(which), mixing.take(which)), blocks)
        else:
            sums, kept = _in_blocks(part, some, shares, stream) if in_blocks else part(some, shares)
    if dealt is not None:
        sums = jax.lax.psum(sums, AXIS)
        loss, finite, norm = dealt.collect((kept.loss, kept.finite, kept.norm))
        kept = Kept(loss, finite, norm, kept.moves)
    if order is not None:
        kept = jax.tree.map(lambda each: each[jnp.argsort(order)], kept)
    beside = None if mixing.members is None else solver.rule(key, hyper, solver.step_of(hyper).lr)
    return Trained(*_moved(rule, beside, mixing, sums, kept.finite), kept, dealt, solver.plan)


def _part(rule: Rule, updates: Updates, mixing: Mixing, size: int | None) -> tuple[Sums, Kept]:
    """The sums over a part of the participants, and what is kept of their updates: sketches of `size` numbers, or all of them."""
    delta = jnp.asarray(updates.delta)
    norm = jnp.linalg.norm(delta, axis=1)
    without_noise = rule._replace(noise=None)  # noise comes once, on the sum of all parts
    moved, finite = sum_by(without_noise, mixing.mix, delta)
    buffers = None
    if mixing.members is not None:  # a broken client is left out of both sums
        rows = jnp.where(finite[:, None], jnp.asarray(updates.velocity), jnp.nan)
        buffers = sum_by(without_noise, mixing.members, rows)[0]
    return (moved, buffers), Kept(updates.loss, finite, norm, delta if size is None else sketch(delta, size))


def _moved(rule: Rule, beside: Rule | None, mixing: Mixing, sums: Sums, finite: Array) -> tuple[Mixed, Array | None]:
    """The clusters' models and momentum buffers after the sums over all participants. `beside`: the rule of the buffers."""
    mix, models, members, velocity = mixing
    moved, buffers = with_noise(rule, mix, sums[0]), sums[1]
    if beside is not None and members is not None and buffers is not None and velocity is not None:
        velocity = replace_by(members, with_noise(beside, members, buffers), finite, velocity, beside).new
    return move_by(mix, moved, finite, models, rule), velocity


def choose_and_train(
    solver: Solver,
    key: Array,
    federation: Federation,
    jobs: Jobs,
    hyper: Hyper,
    mix_of: Callable[[Array], Array],
    models: Array,
) -> tuple[Trained, Array]:
    """As `train_and_mix`, of participants who pick their own start (`solver.chooses`); also i32[S] which they picked, from
    which `mix_of` makes the mixing matrix."""
    rule = solver.rule(key, hyper)
    dealt = deal_out(solver.costs(federation, jobs), solver.plan)
    here = jnp.arange(jobs.client.shape[0]) if dealt is None else dealt.jobs
    with alone():
        updates = solver.fit(key, federation, jobs.take(here), hyper)
    assert updates.which is not None
    which = updates.which if dealt is None else dealt.collect(updates.which)
    mixing = Mixing(mix_of(which), models)
    sums, kept = _part(rule, updates, mixing.take(here), None)
    if dealt is not None:
        sums = jax.lax.psum(sums, AXIS)
        loss, finite, norm = dealt.collect((kept.loss, kept.finite, kept.norm))
        kept = Kept(loss, finite, norm, kept.moves)
    return Trained(*_moved(rule, None, mixing, sums, kept.finite), kept, dealt, solver.plan), which


def _in_blocks(part: Part, jobs: Jobs, mixing: Mixing, block: int) -> tuple[Sums, Kept]:
    """The sums of `part` over blocks of participants, and what it keeps of each of them."""
    number = jobs.client.shape[0]
    places = jnp.arange(-(-number // block) * block).reshape(-1, block)
    nothing = jnp.zeros_like(mixing.models)
    begin: Sums = (nothing, None if mixing.members is None else nothing)

    def one(total: Sums, which: Array) -> tuple[Sums, Kept]:
        which = jnp.where(which < number, which, -1)
        sums, kept = part(jobs.take(which), mixing.take(which))
        return jax.tree.map(jnp.add, total, sums), kept

    sums, kept = jax.lax.scan(one, begin, places)
    return sums, jax.tree.map(lambda each: each.reshape(places.size, *each.shape[2:])[:number], kept)


def train_clusters(
    solver: Solver,
    key: Array,
    federation: Federation,
    cohort: Cohort,
    models: Array,
    which: Array,
    hyper: Hyper,
    average: str,
    traffic: Traffic,
) -> tuple[Array, Info]:
    """(models f32[K, d], Info) after FedAvg inside each cluster; which i32[S] is each participant's cluster."""
    mix = weights_by(which, cohort.mask, sizes(federation, cohort), models.shape[0], average)
    trained = train_and_mix(solver, key, federation, jobs_from(cohort, models, which), hyper, Mixing(mix, models))
    return trained.mixed.new, report_trained(federation, cohort, trained, which, trained.mixed.new - models, traffic)


def report(
    federation: Federation,
    cohort: Cohort,
    updates: Updates,
    start: Array,
    end: Array,
    mixed: Mixed,
    traffic: Traffic,
    **diag: Array,
) -> Info:
    """The Info of a round; start, end f32[S, d] are each participant's model before the round and after aggregation."""
    finite, norm = usable(updates.delta), jnp.linalg.norm(updates.delta, axis=1)
    distance = jnp.linalg.norm(start + updates.delta - end, axis=1)
    return _info(federation, cohort, (updates.loss, finite, norm, distance), mixed.nonfinite, traffic, diag)


def report_trained(
    federation: Federation,
    cohort: Cohort,
    trained: Trained,
    which: Array,
    moved: Array,
    traffic: Traffic,
    **diag: Array,
) -> Info:
    """As `report`, for a round of which only what `Trained` keeps is left. which i32[S] is each participant's cluster, moved
    f32[K, d] how far the clusters' models went from the start of the round to its end."""
    kept, size = trained.kept, trained.kept.moves.shape[1]
    distance = _distances(trained, which, moved if size == moved.shape[1] else sketch(moved, size))
    each = (kept.loss, kept.finite, kept.norm, distance)
    return _info(federation, cohort, each, trained.mixed.nonfinite, traffic, diag)


def _info(
    federation: Federation,
    cohort: Cohort,
    each: tuple[Array, Array, Array, Array],
    nonfinite: Array,
    traffic: Traffic,
    diag: dict[str, Array],
) -> Info:
    """`each`: of every participant the loss, whether its update is finite, its norm, and its distance from the model after the
    round."""
    loss, finite, norm, distance = each
    counted = cohort.mask & finite
    discrepancy, drift = mean_over(cohort, counted, distance), mean_over(cohort, counted, norm)
    lost = jnp.any(cohort.mask) & ~jnp.any(counted)
    return Info(traffic, mean_loss(federation, cohort, loss), discrepancy, drift, nonfinite, lost, diag)


def mean_over(cohort: Cohort, who: Array, each: Array) -> Array:
    """f32[]: the mean of each f32[S] over the participants who bool[S]; NaN in a round without participants."""
    mean = jnp.sum(jnp.where(who, each, 0.0)) / jnp.maximum(jnp.sum(who), 1)
    return jnp.where(jnp.any(cohort.mask), mean, jnp.nan)


def mean_loss(federation: Federation, cohort: Cohort, loss: Array) -> Array:
    """f32[]: the mean training loss of a sample, of the participants' losses f32[S]; NaN in a round without participants."""
    weight = jnp.where(cohort.mask, sizes(federation, cohort), 0.0)
    total = jnp.sum(jnp.where(weight > 0, weight * loss, 0.0))
    return jnp.where(jnp.any(cohort.mask), total / jnp.maximum(jnp.sum(weight), 1.0), jnp.nan)


def _distances(trained: Trained, which: Array, moved: Array) -> Array:
    """f32[S]: how far each participant's update is from how its cluster moved."""
    dealt = trained.dealt
    cluster = which if dealt is None else which[dealt.jobs]
    pairs = (trained.kept.moves, cluster)
    distance = lambda pair: jnp.linalg.norm(pair[0] - moved[pair[1]])  # noqa: E731
    # one after another on a CPU: the gathered rows of `moved` would be another copy of all updates
    if not trained.plan.sequential:
        found = jax.vmap(distance)(pairs)
    elif dealt is None or dealt.number is None:
        found = jax.lax.map(distance, pairs)
    else:  # as many as are this device's
        one = lambda i, out: out.at[i].set(distance((pairs[0][i], cluster[i])))  # noqa: E731
        found = jax.lax.fori_loop(0, dealt.number, one, jnp.zeros(cluster.shape))
    return found if dealt is None else dealt.collect(found)
