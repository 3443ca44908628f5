"""A round of training whose updates are summed into the clusters' models: all at once, or (`Plan.stream`) block after block of
participants, so that memory holds a block and the clusters, not a model per participant."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.devices.spread import AXIS, Dealt, alone, deal_out, in_own_blocks
from cfljax.kernels.mix import Mixed, move_by, replace_by, sum_by, weights_by, with_noise
from cfljax.kernels.sketch import sketch
from cfljax.local.solver import Solver, Work, owners_of
from cfljax.types import Cohort, Federation, Hyper, Info, Jobs, Plan, Traffic, Updates

SHORT = 256
"""Numbers that a participant's update is kept as while they stream: the discrepancy is then known to about 4 % (1/√512)."""


class Each(NamedTuple):
    """What is left of participants' updates."""

    loss: jax.Array
    """f32[S]."""
    finite: jax.Array
    """bool[S]."""
    norm: jax.Array
    """f32[S]."""
    moves: jax.Array
    """f32[S, d] the updates, or f32[S, SHORT] sketches of them; of several devices' participants only one's own."""


class Together(NamedTuple):
    """A round of training."""

    mixed: Mixed
    """The clusters' models, moved."""
    velocity: jax.Array | None
    """f32[K, d]: the members' mean momentum buffers, where such were asked for."""
    each: Each
    dealt: Dealt | None
    """Whose moves are here; None: everybody's."""
    plan: Plan


def jobs_from(cohort: Cohort, start: jax.Array, which: jax.Array | None, **more: Any) -> Jobs:
    """Local training of the cohort, participant s from `start[which[s]]`, or from the one that it picks."""
    return Jobs(cohort.ids, cohort.mask, cohort.work, start, which, **more)


def sizes(federation: Federation, cohort: Cohort) -> jax.Array:
    """f32[S]: n_i of the participants."""
    return federation.train.count[cohort.ids].astype(jnp.float32)


Sums = tuple[jax.Array, jax.Array | None]
"""(mix @ updates f32[K, d], members @ buffers f32[K, d] or None) over some participants."""


def train_together(
    solver: Solver,
    key: jax.Array,
    federation: Federation,
    jobs: Jobs,
    hyper: Hyper,
    mix: jax.Array,
    old: jax.Array,
    work: Work | None = None,
    members: jax.Array | None = None,
    velocity: jax.Array | None = None,
    short: int | None = None,
) -> Together:
    """Local training of the jobs, and `old + mix @ updates`; mix f32[K, S], old f32[K, d]. `members` f32[K, S]: how momentum
    buffers are averaged, where a cluster has one, velocity f32[K, d]. `short`: keep sketches of that many numbers of the updates,
    for methods that compare them."""
    rule, amount = solver.rule(key, hyper), solver.work if work is None else work
    whole, stream = bool(rule.statistic), solver.plan.stream
    if whole and stream:
        raise ValueError("a robust rule needs all updates at once: no Plan.stream")
    costs = solver.costs(federation, jobs, amount)
    dealt = None if whole else deal_out(costs, solver.plan, owners_of(federation, jobs))
    order = None  # of blocks whose clients wait for each other: those of about equal work together
    if dealt is None and 0 < stream < jobs.client.shape[0] and not solver.sequential:
        order = jnp.argsort(-costs)
    mine = order if dealt is None else dealt.mine
    some, shares, parts = (jobs, mix, members) if mine is None else _mine(mine, jobs, mix, members)
    number = some.client.shape[0]

    def part(jobs: Jobs, mix: jax.Array, members: jax.Array | None) -> tuple[Sums, Each]:
        updates: Updates = solver.fit(key, federation, jobs, hyper, amount)
        delta = jnp.asarray(updates.delta)
        norm = jnp.linalg.norm(delta, axis=1)
        moved, finite = sum_by(rule._replace(noise=None), mix, delta)  # noise comes once, on the sum of the parts
        buffers = None
        if members is not None:  # a broken client is left out of both
            there = jnp.where(finite[:, None], jnp.asarray(updates.velocity), jnp.nan)
            buffers = sum_by(rule._replace(noise=None), members, there)[0]
        moves = delta if short is None and not 0 < stream < number else sketch(delta, short or SHORT)
        return (moved, buffers), Each(jnp.asarray(updates.loss), finite, norm, moves)

    with contextlib.nullcontext() if whole else alone():
        if dealt is not None and dealt.own is not None:
            blocks = dealt._replace(block=stream) if 0 < stream < number else dealt
            (moved, buffers), each = in_own_blocks(lambda mine: part(*_mine(mine, jobs, mix, members)), blocks)
        else:
            (moved, buffers), each = (_in_blocks if 0 < stream < number else _at_once)(part, some, shares, parts, stream)
    if dealt is not None:
        moved, buffers = jax.lax.psum((moved, buffers), AXIS)
        loss, finite, norm = dealt.collect((each.loss, each.finite, each.norm))
        each = Each(loss, finite, norm, each.moves)
    if order is not None:
        each = jax.tree.map(lambda a: a[jnp.argsort(order)], each)
    moved = with_noise(rule, mix, moved)
    if members is not None and buffers is not None and velocity is not None:
        beside = solver.rule(key, hyper, hyper["lr"])
        velocity = replace_by(members, with_noise(beside, members, buffers), each.finite, velocity, beside).new
    return Together(move_by(mix, moved, each.finite, old, rule), velocity, each, dealt, solver.plan)


def choose_and_train(
    solver: Solver,
    key: jax.Array,
    federation: Federation,
    jobs: Jobs,
    hyper: Hyper,
    mix_of: Callable[[jax.Array], jax.Array],
    old: jax.Array,
) -> tuple[Together, jax.Array]:
    """As `train_together`, of participants who pick their own start (`solver.chooses`); also i32[S] which they picked, from
    which `mix_of` makes the mixing matrix."""
    rule = solver.rule(key, hyper)
    dealt = deal_out(solver.costs(federation, jobs), solver.plan)
    mine = jnp.arange(jobs.client.shape[0]) if dealt is None else dealt.mine
    with alone():
        updates: Updates = solver.fit(key, federation, _some(mine, jobs), hyper)
    delta, loss, which = (jnp.asarray(part) for part in (updates.delta, updates.loss, updates.which))
    which = which if dealt is None else dealt.collect(which)
    mix, norm = mix_of(which), jnp.linalg.norm(delta, axis=1)
    moved, finite = sum_by(rule._replace(noise=None), _columns(mine, mix), delta)
    if dealt is not None:
        moved = jax.lax.psum(moved, AXIS)
        loss, finite, norm = dealt.collect((loss, finite, norm))
    mixed = move_by(mix, with_noise(rule, mix, moved), finite, old, rule)
    return Together(mixed, None, Each(loss, finite, norm, delta), dealt, solver.plan), which


def _mine(mine: jax.Array, jobs: Jobs, mix: jax.Array, members: jax.Array | None) -> tuple[Jobs, jax.Array, jax.Array | None]:
    """This device's jobs, and their columns of the matrices."""
    return _some(mine, jobs), _columns(mine, mix), None if members is None else _columns(mine, members)


def _some(mine: jax.Array, jobs: Jobs) -> Jobs:
    """Those of the jobs; free places (−1) are masked."""
    which, anchor_of = (None if each is None else each[mine] for each in (jobs.which, jobs.anchor_of))
    mask = jobs.mask[mine] & (mine >= 0)
    return jobs._replace(client=jobs.client[mine], mask=mask, work=jobs.work[mine], which=which, anchor_of=anchor_of)


def _columns(mine: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.where(mine >= 0, matrix[:, mine], 0.0)


def _at_once(part: Any, jobs: Jobs, mix: jax.Array, members: jax.Array | None, _: int) -> tuple[Sums, Each]:
    return part(jobs, mix, members)


def _in_blocks(part: Any, jobs: Jobs, mix: jax.Array, members: jax.Array | None, block: int) -> tuple[Sums, Each]:
    """The sums of `part` over blocks of participants, and what it tells of each of them."""
    number, clusters = jobs.client.shape[0], mix.shape[0]
    blocks = -(-number // block)
    cut = lambda a: None if a is None else jnp.pad(a, (0, blocks * block - number)).reshape(blocks, block)  # noqa: E731

    def columns(m: jax.Array | None) -> jax.Array | None:
        if m is None:
            return None
        return jnp.pad(m, ((0, 0), (0, blocks * block - number))).reshape(clusters, blocks, block).swapaxes(0, 1)

    def one(total: Sums, at: Any) -> tuple[Sums, Each]:
        client, mask, work, which, anchor_of, mix, members = at
        some = jobs._replace(client=client, mask=mask, work=work, which=which, anchor_of=anchor_of)
        sums, each = part(some, mix, members)
        return jax.tree.map(jnp.add, total, sums), each

    nothing = jnp.zeros((clusters, jobs.start.shape[1]))
    begin = (nothing, None if members is None else nothing)
    fields = (cut(jobs.client), cut(jobs.mask), cut(jobs.work), cut(jobs.which), cut(jobs.anchor_of))
    sums, each = jax.lax.scan(one, begin, (*fields, columns(mix), columns(members)))
    return sums, jax.tree.map(lambda a: a.reshape(blocks * block, *a.shape[2:])[:number], each)


def mean_over(cohort: Cohort, who: jax.Array, each: jax.Array) -> jax.Array:
    """f32[]: the mean of each f32[S] over the participants who bool[S]; NaN in a round without participants."""
    mean = jnp.sum(jnp.where(who, each, 0.0)) / jnp.maximum(jnp.sum(who), 1)
    return jnp.where(jnp.any(cohort.mask), mean, jnp.nan)


def mean_loss(federation: Federation, cohort: Cohort, loss: jax.Array) -> jax.Array:
    """f32[]: the mean training loss of a sample, of losses f32[S]; NaN in a round without participants."""
    weight = jnp.where(cohort.mask, sizes(federation, cohort), 0.0)
    total = jnp.sum(jnp.where(weight > 0, weight * loss, 0.0))
    return jnp.where(jnp.any(cohort.mask), total / jnp.maximum(jnp.sum(weight), 1.0), jnp.nan)


def tell(
    federation: Federation,
    cohort: Cohort,
    trained: Together,
    which: jax.Array,
    moved: jax.Array,
    traffic: Traffic,
    **diag: jax.Array,
) -> Info:
    """The Info of a round; moved f32[K, d] is how far the clusters' models went from the start of the round to its end."""
    each = trained.each
    ok = cohort.mask & each.finite
    whole = each.moves.shape[1] == moved.shape[1]
    loss = mean_loss(federation, cohort, each.loss)
    lost = jnp.any(cohort.mask) & ~jnp.any(ok)
    apart = _distances(trained, which, moved if whole else sketch(moved, each.moves.shape[1]))
    discrepancy, drift = mean_over(cohort, ok, apart), mean_over(cohort, ok, each.norm)
    return Info(traffic, loss, discrepancy, drift, trained.mixed.nonfinite, lost, diag)


def _distances(trained: Together, which: jax.Array, moved: jax.Array) -> jax.Array:
    """f32[S]: how far each participant's update is from how its cluster moved."""
    own = which if trained.dealt is None else which[trained.dealt.mine]
    pairs = (trained.each.moves, own)
    distance = lambda pair: jnp.linalg.norm(pair[0] - moved[pair[1]])  # noqa: E731
    # one after another on a CPU: the gathered rows of `moved` would be another copy of all updates
    if not trained.plan.sequential:
        found = jax.vmap(distance)(pairs)
    elif trained.dealt is None or trained.dealt.own is None:
        found = jax.lax.map(distance, pairs)
    else:  # as many as are this device's
        one = lambda i, out: out.at[i].set(distance((pairs[0][i], own[i])))  # noqa: E731
        found = jax.lax.fori_loop(0, trained.dealt.own, one, jnp.zeros(own.shape))
    return found if trained.dealt is None else trained.dealt.collect(found)


def train_clusters(
    solver: Solver,
    key: jax.Array,
    federation: Federation,
    cohort: Cohort,
    models: jax.Array,
    which: jax.Array,
    hyper: Hyper,
    average: str,
    sent: Traffic,
) -> tuple[jax.Array, Info]:
    """(models f32[K, d], Info) after FedAvg inside each cluster; which i32[S] is each participant's cluster."""
    mix = weights_by(which, cohort.mask, sizes(federation, cohort), models.shape[0], average)
    trained = train_together(solver, key, federation, jobs_from(cohort, models, which), hyper, mix, models)
    return trained.mixed.new, tell(federation, cohort, trained, which, trained.mixed.new - models, sent)
