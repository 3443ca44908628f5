"""A round of training whose updates are summed into the clusters' models: all at once, or (`Plan.stream`) block after block of
participants, so that memory holds a block and the clusters, not a model per participant."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax.kernels.mix import Mixed, move_by, replace_by, weighted_sum, weights_by
from cfljax.kernels.sketch import sketch
from cfljax.local.solver import Solver, Work
from cfljax.methods.common import jobs_from, sizes
from cfljax.types import Cohort, Federation, Hyper, Info, Jobs, Traffic, Updates

SHORT = 256
"""Numbers that a participant's update is kept as while they stream: the discrepancy is then known to about 4 % (1/√512)."""


class Together(NamedTuple):
    """What is left of the participants' updates."""

    mixed: Mixed
    """The clusters' models, moved by them."""
    velocity: jax.Array | None
    """f32[K, d]: the members' mean momentum buffers, where such were asked for."""
    loss: jax.Array
    """f32[S]."""
    finite: jax.Array
    """bool[S]."""
    norm: jax.Array
    """f32[S] of the updates."""
    moves: jax.Array
    """f32[S, d] the updates, or f32[S, SHORT] sketches of them."""


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
) -> Together:
    """Local training of the jobs, and `old + mix @ updates`; mix f32[K, S], old f32[K, d]. `members` f32[K, S]: how momentum
    buffers are averaged, where a cluster has one, velocity f32[K, d]."""
    number, stream = jobs.client.shape[0], solver.plan.stream
    amount = solver.work if work is None else work
    block = stream if 0 < stream < number else number

    def part(jobs: Jobs, mix: jax.Array, members: jax.Array | None) -> tuple[jax.Array, jax.Array | None, Together]:
        updates: Updates = solver.fit(key, federation, jobs, hyper, amount)
        delta = jnp.asarray(updates.delta)
        moved, finite = weighted_sum(mix, delta)
        buffers = None
        if members is not None:  # a broken client is left out of both
            buffers = weighted_sum(members, jnp.where(finite[:, None], jnp.asarray(updates.velocity), jnp.nan))[0]
        moves = delta if block == number else sketch(delta, SHORT)
        norm = jnp.linalg.norm(delta, axis=1)
        return moved, buffers, Together(None, None, jnp.asarray(updates.loss), finite, norm, moves)  # type: ignore[arg-type]

    if block == number:
        moved, buffers, found = part(jobs, mix, members)
    else:
        moved, buffers, found = _in_blocks(part, jobs, mix, members, block)
    if members is not None and buffers is not None and velocity is not None:
        velocity = replace_by(members, buffers, found.finite, velocity).new
    return found._replace(mixed=move_by(mix, moved, found.finite, old), velocity=velocity)


def _in_blocks(part, jobs, mix, members, block):  # type: ignore[no-untyped-def]
    """The sums of `part` over blocks of participants, and what it tells of each of them."""
    number, clusters = jobs.client.shape[0], mix.shape[0]
    blocks = -(-number // block)
    cut = lambda a: None if a is None else jnp.pad(a, (0, blocks * block - number)).reshape(blocks, block)  # noqa: E731
    shares = lambda m: jnp.pad(m, ((0, 0), (0, blocks * block - number))).reshape(clusters, blocks, block).swapaxes(0, 1)  # noqa: E731
    own = None if members is None else shares(members)
    each = (cut(jobs.client), cut(jobs.mask), cut(jobs.work), cut(jobs.which), cut(jobs.anchor_of), shares(mix), own)

    def one(total, at):  # type: ignore[no-untyped-def]
        client, mask, work, which, anchor_of, mix, members = at
        some = jobs._replace(client=client, mask=mask, work=work, which=which, anchor_of=anchor_of)
        moved, buffers, found = part(some, mix, members)
        return jax.tree.map(jnp.add, total, (moved, buffers)), found

    nothing = jnp.zeros((clusters, jobs.start.shape[1]))
    (moved, buffers), found = jax.lax.scan(one, (nothing, None if members is None else nothing), each)
    return moved, buffers, jax.tree.map(lambda a: a.reshape(blocks * block, *a.shape[2:])[:number], found)


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
    ok = cohort.mask & trained.finite
    n = jnp.maximum(jnp.sum(ok), 1)

    def mean(each: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(ok, each, 0.0)) / n

    whole = trained.moves.shape[1] == moved.shape[1]
    discrepancy = mean(jnp.linalg.norm(trained.moves - (moved if whole else sketch(moved, SHORT))[which], axis=1))
    weight = jnp.where(cohort.mask, sizes(federation, cohort), 0.0)
    loss = jnp.sum(jnp.where(weight > 0, weight * trained.loss, 0.0)) / jnp.maximum(jnp.sum(weight), 1.0)
    lost = jnp.any(cohort.mask) & ~jnp.any(ok)
    return Info(traffic, loss, discrepancy, mean(trained.norm), trained.mixed.nonfinite, lost, diag)


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
