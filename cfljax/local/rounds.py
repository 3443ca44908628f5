"""A round of training: the participants train, and their updates move the clusters' models. All
updates are held at once, or (`Plan.stream`) participants train in blocks, so that memory holds the
updates of one block and not of all participants."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from cfljax.devices.spread import AXIS, Dealt, deal_out, map_own_blocks, on_one_device
from cfljax.kernels.cosine import sketch
from cfljax.kernels.mix import Aggregate, Rule, add_noise, move_by, replace_by, sum_by
from cfljax.lazy import jax, jnp
from cfljax.local.flight import find_flight, join_flight
from cfljax.local.schedule import job_owners
from cfljax.local.solver import Solver
from cfljax.types import Array, Cohort, Federation, Flight, Hyper, Jobs, Plan, Updates

SKETCH_LENGTH = 256
"""When participants train in blocks, a sketch of this number of values is kept of each update. The
discrepancy computed from it is accurate to about 4 % (1/√512)."""


class PerUpdate(NamedTuple):
    """The values that are kept of each participant's update until the end of the round."""

    # f32[S]: the mean training loss
    loss: Array
    # bool[S]: whether the update has neither NaN nor Inf
    finite: Array
    # f32[S]: the Euclidean norm of the update
    norm: Array
    moves: Array
    """f32[S, d]: the updates, or f32[S, size] sketches. Each of several devices has the rows of the
    participants that it trained."""
    # f32[S, n]: the updates of client-side parameters; None: there are none
    home: Array | None = None
    # f32[S, n] by name: the participants' new rows of `ClientState.rows`
    rows: dict[str, Array] = {}


class Mixing(NamedTuple):
    """How the updates of a round move the clusters' models, for `train_and_mix`."""

    mix: Array
    """f32[K, S]: `mix @ updates` is added to the models."""
    models: Array
    """f32[K, d]: the clusters' models before the round."""
    members: Array | None = None
    """f32[K, S]: `members @ buffers` gives the new momentum buffers of the clusters; None: clusters
    have no buffers."""
    velocity: Array | None = None
    """f32[K, d]: the clusters' momentum buffers before the round."""

    def take(self, which: Array) -> Mixing:
        """Select the columns of some participants.

        Args:
            which: i32[n] the participants; a −1 gives a column of zeros.
        """

        def take_columns(matrix: Array) -> Array:
            return jnp.where(which >= 0, matrix[:, which], 0.0)

        members = None if self.members is None else take_columns(self.members)
        return self._replace(mix=take_columns(self.mix), members=members)


class Trained(NamedTuple):
    """The result of `train_and_mix`: the models after the round, and what the report needs of the
    updates."""

    mixed: Aggregate
    """The clusters' models after the round, and the updates that were left out."""
    velocity: Array | None
    """f32[K, d]: the clusters' momentum buffers after the round; None: clusters have no buffers."""
    kept: PerUpdate
    dealt: Dealt | None
    """Which device trained which participants; each device keeps the `kept.moves` of its own. None:
    one device trained all."""
    plan: Plan
    """The execution plan by which the participants were trained."""
    steps: Array
    """i32[S]: the local steps of each participant."""
    flight: Flight | None = None
    """The updates in flight, with the new ones; None: all updates have been mixed in their
    round."""


# (mix @ updates f32[K, d], members @ buffers f32[K, d] or None), both over a part of the
# participants
Sums = tuple[Array, Array | None]


def jobs_from(cohort: Cohort, start: Array, which: Array | None, **more: Array | None) -> Jobs:
    """Make the jobs of the participants, for `Solver.fit` and `train_and_mix`: participant s starts
    from `start[which[s]]`.

    Args:
        cohort: The participants.
        start: f32[K, d] the models to start from.
        which: i32[S] the row of `start` of each participant; None: each starts from the model with
            the least loss on its data (`Solver.chooses` says whether that is faster).
        more: Fields of `Jobs` from `anchor` on, by name.

    Example:
        ```python
        jobs = jobs_from(cohort, state.models, which, home=state.rows[cohort.ids])
        updates = solver.fit(key, federation, jobs, hyper)
        ```
    """
    return Jobs(cohort.ids, cohort.mask, cohort.work, start, which, kept=cohort.kept, **more)


def sizes(federation: Federation, cohort: Cohort) -> Array:
    """Return f32[S]: the number n_i of training samples of each participant.

    Args:
        federation: The clients' data.
        cohort: The participants.
    """
    return federation.train.count[cohort.ids].astype(jnp.float32)


def train_and_mix(
    solver: Solver,
    key: Array,
    federation: Federation,
    jobs: Jobs,
    hyper: Hyper,
    mixing: Mixing,
    short: int | None = None,
    rule: Rule | None = None,
) -> Trained:
    """Train the jobs, and move the clusters' models by the updates. If memory is short
    (`Plan.stream`), participants train in blocks, and no more than the updates of a block are held.

    Args:
        solver: How participants train.
        key: The round's key.
        federation: The clients' data.
        jobs: What each participant trains.
        hyper: The numbers of the run.
        mixing: How updates move the models.
        short: Keep sketches of this number of values instead of the updates, for methods that
            compare updates; None: keep the updates, or, if participants train in blocks, sketches
            of SKETCH_LENGTH numbers.
        rule: The server's rule for these updates, with its own noise, in a round that trains twice
            with one key; None: the round's.

    Example:
        ```python
        mix = averages(solver, federation, cohort, which, clusters, "samples", hyper)
        trained = train_and_mix(solver, key, federation, jobs, hyper, Mixing(mix, state.models))
        models = trained.mixed.new
        ```
    """
    rule = rule or solver.rule(key, hyper)
    if find_flight(jobs.kept) is not None:
        assert jobs.which is not None and mixing.members is None
        updates = solver.fit(key, federation, jobs, hyper)
        return _mix_arrived(solver, rule, jobs, updates, jobs.which, mixing, short)
    if rule.statistic and solver.plan.stream:
        raise ValueError("a robust rule needs all updates at once: no Plan.stream")

    share = _choose_share(solver, federation, jobs, mixing, rule)
    blocks = _choose_blocks(solver, share)
    # Of updates that are trained in blocks there is no room for more than sketches
    size = short or (SKETCH_LENGTH if _fills_blocks(solver, share.jobs) else None)

    def train_part(jobs: Jobs, mixing: Mixing) -> tuple[Sums, PerUpdate]:
        return _sum_part(rule, solver.fit(key, federation, jobs, hyper), mixing, size)

    # A robust rule leaves it to `solver.fit` to divide the jobs among devices
    with contextlib.nullcontext() if rule.statistic else on_one_device():
        if blocks is None:
            sums, kept = train_part(share.jobs, share.mixing)
        else:
            sums, kept = map_own_blocks(
                lambda which: train_part(share.jobs.take(which), share.mixing.take(which)), blocks
            )
    sums, kept = _sum_devices(share.dealt, sums, kept)
    if share.order is not None:
        # Back into the order of the cohort
        back = jnp.argsort(share.order)
        kept = jax.tree.map(lambda each: each[back], kept)
    buffer_rule = None
    if mixing.members is not None:
        # Buffers are clipped, and get noise, in the scale of updates: times the learning rate
        buffer_rule = solver.rule(key, hyper, solver.step_of(hyper).lr)
    mixed, velocity = _move_models(rule, buffer_rule, mixing, sums, kept.finite)
    steps = solver.count_steps(federation, jobs)
    return Trained(mixed, velocity, kept, share.dealt, solver.plan, steps)


class _Share(NamedTuple):
    """The jobs that this device trains, in the order in which it does, and their columns of the
    mixing matrices."""

    jobs: Jobs
    mixing: Mixing
    # Which device has which jobs; None: this one has all
    dealt: Dealt | None
    # i32[S]: the order of its jobs among all; None: as they were, or as in `dealt`
    order: Array | None


def _choose_share(
    solver: Solver, federation: Federation, jobs: Jobs, mixing: Mixing, rule: Rule
) -> _Share:
    """Choose the jobs of this device. Each device trains and sums a part, and only sums are
    exchanged; but a robust rule needs the updates of all participants on each device."""
    costs = solver.costs(federation, jobs)
    dealt = None if rule.statistic else deal_out(costs, solver.plan, job_owners(federation, jobs))
    if dealt is not None:
        return _Share(jobs.take(dealt.jobs), mixing.take(dealt.jobs), dealt, None)
    order = _order_for_blocks(solver, costs)
    if order is not None:
        return _Share(jobs.take(order), mixing.take(order), None, order)
    return _Share(jobs, mixing, None, None)


def _choose_blocks(solver: Solver, share: _Share) -> Dealt | None:
    """Return how many of its jobs this device trains at a time; None: all at once."""
    dealt = share.dealt
    index = jnp.arange(share.jobs.client.shape[0])
    blocks = None
    if dealt is not None and dealt.number is not None:
        # It has some jobs, of which only the first `dealt.number` are its own
        blocks = dealt._replace(jobs=index)
    if not _fills_blocks(solver, share.jobs):
        return blocks
    if blocks is None:
        blocks = Dealt(index, None, jnp.int32(len(index)))
    return blocks._replace(block=solver.plan.stream)


def _fills_blocks(solver: Solver, jobs: Jobs) -> bool:
    """Return whether the jobs of a device are more than one block of `Plan.stream`."""
    return 0 < solver.plan.stream < jobs.client.shape[0]


def _order_for_blocks(solver: Solver, costs: Array) -> Array | None:
    """Return the order i32[S] in which participants of these costs f32[S] fill blocks; None: they
    stay in their order."""
    if not 0 < solver.plan.stream < costs.shape[0] or solver.sequential:
        return None
    # Clients of a block wait for each other, so that clients with about equal work go together
    return jnp.argsort(-costs)


def _sum_part(
    rule: Rule, updates: Updates, mixing: Mixing, size: int | None
) -> tuple[Sums, PerUpdate]:
    """Sum over a part of the participants, and keep their updates, or sketches of `size`
    numbers."""
    delta = jnp.asarray(updates.delta)
    norm = jnp.linalg.norm(delta, axis=1)
    # Noise comes once, on the sum of all parts
    without_noise = rule._replace(noise=None)
    moved, finite = sum_by(without_noise, mixing.mix, delta)
    buffers = None
    if mixing.members is not None:
        # A client with a broken update is left out of both sums
        rows = jnp.where(finite[:, None], jnp.asarray(updates.velocity), jnp.nan)
        buffers = sum_by(without_noise, mixing.members, rows)[0]
    moves = delta if size is None else sketch(delta, size)
    return (moved, buffers), PerUpdate(
        updates.loss, finite, norm, moves, updates.home, updates.rows
    )


def _sum_devices(dealt: Dealt | None, sums: Sums, kept: PerUpdate) -> tuple[Sums, PerUpdate]:
    """Sum over the participants of all devices, and collect the kept values, apart from the
    moves."""
    if dealt is None:
        return sums, kept
    collected = dealt.collect(
        {name: each for name, each in kept._asdict().items() if name != "moves"}
    )
    return jax.lax.psum(sums, AXIS), kept._replace(**collected)


def _move_models(
    rule: Rule, buffer_rule: Rule | None, mixing: Mixing, sums: Sums, finite: Array
) -> tuple[Aggregate, Array | None]:
    """Return the clusters' models and momentum buffers after the round, from the sums over all
    participants. `buffer_rule`: the aggregation rule of the buffers; None: there are none."""
    mix, models, members, velocity = mixing
    moved, buffers = sums
    moved = add_noise(rule, mix, moved)
    if members is not None and buffers is not None and velocity is not None:
        assert buffer_rule is not None
        buffers = add_noise(buffer_rule, members, buffers)
        velocity = replace_by(members, buffers, finite, velocity, buffer_rule).new
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
    """Train as `train_and_mix` does, for participants that choose the model that they start from
    (see `Solver.chooses`). Also return their choices i32[S].

    Args:
      solver: How participants train.
      key: The round's key.
      federation: The clients' data.
      jobs: What each participant trains, with `which` None.
      hyper: The numbers of the run.
      mix_of: The function that makes the mixing matrix f32[K, S] of the choices i32[S].
      models: f32[K, d] the clusters' models.
    """
    rule = solver.rule(key, hyper)
    if find_flight(jobs.kept) is not None:
        updates = solver.fit(key, federation, jobs, hyper)
        assert updates.which is not None
        mixing = Mixing(mix_of(updates.which), models)
        return _mix_arrived(solver, rule, jobs, updates, updates.which, mixing, None), updates.which
    dealt = deal_out(solver.costs(federation, jobs), solver.plan)
    here = jnp.arange(jobs.client.shape[0]) if dealt is None else dealt.jobs
    with on_one_device():
        updates = solver.fit(key, federation, jobs.take(here), hyper)
    assert updates.which is not None
    which = updates.which if dealt is None else dealt.collect(updates.which)
    mixing = Mixing(mix_of(which), models)
    sums, kept = _sum_part(rule, updates, mixing.take(here), None)
    sums, kept = _sum_devices(dealt, sums, kept)
    mixed, velocity = _move_models(rule, None, mixing, sums, kept.finite)
    steps = solver.count_steps(federation, jobs)
    return Trained(mixed, velocity, kept, dealt, solver.plan, steps), which


def _mix_arrived(
    solver: Solver,
    rule: Rule,
    jobs: Jobs,
    updates: Updates,
    which: Array,
    mixing: Mixing,
    size: int | None,
) -> Trained:
    """Mix the updates that arrive, some of them of earlier rounds (`local.flight`). `which` i32[M]:
    the clusters of the jobs. The kept values cover all slots, only the residuals belong to the
    jobs."""
    assert jobs.kept.flight is not None
    in_all_slots, flight = join_flight(jobs.kept.flight, jobs, which, updates)
    sums, kept = _sum_part(rule, in_all_slots, mixing, size)
    mixed, velocity = _move_models(rule, None, mixing, sums, kept.finite)
    return Trained(mixed, velocity, kept, None, solver.plan, updates.steps, flight)
