"""Train clients of unequal work in a fixed number of lanes, on an accelerator: a lane that has
finished a client takes the next.

Clients that train side by side wait for the one with the most steps. In a sweep, side by side means
all participants of all runs. If client sizes follow a power law, nearly all of them wait: of 1,280
clients of MNIST (64 runs of 20) the largest has 3,300 steps and the mean 120. So a few lanes train
them all in as many steps in a row, the clients with the most steps first. Under `vmap` the runs
share the lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax.lazy import custom_vmap, jax, jnp
from cfljax.local.backends import (
    SolverSettings,
    make_trainer,
    send_update,
    takes_steps_in_products,
    train_by_steps,
)
from cfljax.local.schedule import (
    STEPS,
    Course,
    Orders,
    Stepwise,
    Task,
    batch_size,
    count_work,
    do_steps,
    group_steps,
    make_orders,
    steps_at,
)
from cfljax.types import Array, Federation, Hyper, Tree, Updates

# The fewest clients for which a queue pays. H200, a round of W1: 20 clients take 8.2 ms in lockstep
# and 10.1 in a queue, 320 take 122 and 54, 5,120 take 2,219 and 152
MIN_JOBS = 128


class QueuedJobs(NamedTuple):
    """The jobs of a round, [S, …] each; models are given as rows of `ModelTables`."""

    # Without models: `start`, `anchor` and `velocity` are None
    task: Task
    # i32[S] the row of `ModelTables.start` and of `ModelTables.velocity`
    which: Array
    # i32[S] the row of `ModelTables.anchor`
    anchor_of: Array
    # The numbers of each job's run, f32[S]
    hyper: Hyper


class ModelTables(NamedTuple):
    """Models that jobs refer to."""

    # f32[K, d] models to start from
    start: Array
    # f32[K', d] models that proximal terms pull to
    anchor: Array | None
    # f32[K, d] momentum buffers to start with
    velocity: Array | None


def make_task(row: QueuedJobs, tables: ModelTables) -> Task:
    """Return the job of one row with its models."""
    return row.task._replace(
        start=tables.start[row.which],
        anchor=None if tables.anchor is None else tables.anchor[row.anchor_of],
        velocity=None if tables.velocity is None else tables.velocity[row.which],
    )


def choose_lanes(steps: list[int]) -> int:
    """Return the number of lanes for clients with these steps; 0 if all of them should train side
    by side.

    With as many lanes as the total work is larger than the longest client, the lanes are busy for
    as long as that client trains. A quarter more makes up for uneven ends. Few clients leave a chip
    idle however they train, and a queue only costs.
    """
    if len(steps) < MIN_JOBS:
        return 0
    lanes = -(-int(1.25 * sum(steps) / max(max(steps), 1)) // 8) * 8 + 8
    return lanes if 2 * lanes <= len(steps) else 0


@functools.cache
def make_queue(
    solver: SolverSettings, sends: bool
) -> Callable[[Federation, QueuedJobs, ModelTables], Updates]:
    """Return the function that trains jobs in the lanes of the solver's plan. Under `vmap` all
    runs' jobs form one queue. `sends`: updates are returned as the server receives them."""

    def train_in_lockstep(federation: Federation, jobs: QueuedJobs, tables: ModelTables) -> Updates:
        return jax.vmap(
            lambda row: make_trainer(solver, sends, federation, row.hyper)(make_task(row, tables))
        )(jobs)

    @custom_vmap()
    def train(federation: Federation, jobs: QueuedJobs, tables: ModelTables) -> Updates:
        return _Lanes(solver, sends, federation, tables).train(jobs)

    # The rule is called once for each nested vmap, and calls `train` itself for the flat queue
    @train.def_vmap
    def _(
        runs: int, mapped: list[Tree], federation: Federation, jobs: QueuedJobs, tables: ModelTables
    ) -> tuple[Updates, Tree]:
        # Runs with a federation each cannot share lanes, as a lane reads one federation
        if any(jax.tree.leaves(mapped[0])):
            axes = jax.tree.map(lambda each: 0 if each else None, tuple(mapped))
            updates: Updates = jax.vmap(train_in_lockstep, in_axes=axes, axis_size=runs)(
                federation, jobs, tables
            )
            return updates, jax.tree.map(lambda _: True, updates)
        jobs, tables = _join_runs(runs, mapped[1:], jobs, tables)
        updates = train(federation, jobs, tables)
        updates = jax.tree.map(lambda a: a.reshape(runs, -1, *a.shape[1:]), updates)
        return updates, jax.tree.map(lambda _: True, updates)

    return train


def _join_runs(
    runs: int, mapped: list[Tree], jobs: QueuedJobs, tables: ModelTables
) -> tuple[QueuedJobs, ModelTables]:
    """Return the jobs and models of all runs as those of one, [runs · S, …]. `mapped`: trees of
    whether an array has an axis of runs."""

    def add_runs(each: Array, has_axis: bool) -> Array:
        return each if has_axis else jnp.broadcast_to(each, (runs, *each.shape))

    def flatten(tree: Tree) -> Tree:
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)

    jobs, tables = jax.tree.map(add_runs, (jobs, tables), tuple(mapped))
    # A run's models are behind those of the runs before it
    run = jnp.arange(runs, dtype=jnp.int32)[:, None]
    which = jobs.which + run * tables.start.shape[1]
    anchors = tables.start if tables.anchor is None else tables.anchor
    anchor_of = jobs.anchor_of + run * anchors.shape[1]
    return flatten(jobs._replace(which=which, anchor_of=anchor_of)), flatten(tables)


class _Known(NamedTuple):
    """What is known of a job before its first step."""

    course: Course
    # i32[epochs, L]: as in `Orders.all`
    shuffles: Array


class _Lanes(NamedTuple):
    """Training in lanes: what does not depend on the job."""

    solver: SolverSettings
    sends: bool
    federation: Federation
    tables: ModelTables

    def train(self, jobs: QueuedJobs) -> Updates:
        """Train the jobs, each for its own number of steps, in a fixed number of lanes."""
        number = jobs.which.shape[0]
        lanes = min(self.solver.plan.queue, number)
        block = group_steps(self.solver.work, self.federation.train.longest)
        known = jax.vmap(self._prepare)(jobs)
        states = jax.vmap(lambda row, known: self._steps(row, known)[2].begin())(jobs, known)
        # The first job once more, for lanes that have nothing to do: nobody reads what comes of it
        padded = jnp.append(jnp.arange(number), 0)
        job_rows, job_known, states = jax.tree.map(lambda each: each[padded], (jobs, known, states))
        # The jobs with the most steps first; behind them the padding, for each lane once
        queue = jnp.concatenate(
            [jnp.argsort(-known.course.total).astype(jnp.int32), jnp.full(lanes, number, jnp.int32)]
        )

        def turn(carry: tuple[Tree, Array, Array, Array]) -> tuple[Tree, Array, Array, Array]:
            """Do one block of steps in each lane. `job` i32[lanes]: the lanes' jobs; `at`
            i32[lanes]: how many of its steps each has done; `taken` i32[]: how many jobs have been
            taken from the queue."""
            states, job, at, taken = carry
            row, facts, state = jax.tree.map(lambda each: each[job], (job_rows, job_known, states))
            state = jax.vmap(functools.partial(self._do_steps, block))(row, facts, state, at)
            states = jax.tree.map(lambda whole, new: whole.at[job].set(new), states, state)
            at = at + block
            done = at >= facts.course.total
            # The j-th lane that is done takes the j-th of the next jobs
            order = jnp.cumsum(done.astype(jnp.int32))
            following = queue[jnp.minimum(taken + order - 1, number + lanes - 1)]
            return (
                states,
                jnp.where(done, following, job),
                jnp.where(done, 0, at),
                jnp.minimum(taken + order[-1], number),
            )

        begin = (states, queue[:lanes], jnp.zeros(lanes, jnp.int32), jnp.int32(lanes))
        with jax.named_scope(STEPS):
            states = jax.lax.while_loop(lambda carry: jnp.any(carry[1] < number), turn, begin)[0]
        states = jax.tree.map(lambda each: each[:number], states)
        return jax.vmap(self._finish)(jobs, known, states)

    def _prepare(self, row: QueuedJobs) -> _Known:
        """Count a job's steps, and shuffle its samples for all epochs."""
        solver = self.solver
        course = count_work(self.federation, row.task, solver.work, False)._replace(most=None)
        longest = self.federation.train.longest
        shuffles = make_orders(
            self.federation, row.task, course, solver.work, solver.plan, longest, ()
        )
        assert shuffles is not None and shuffles.all is not None
        return _Known(course, shuffles.all)

    def _steps(self, row: QueuedJobs, known: _Known) -> tuple[Task, Orders, Stepwise]:
        """Return the training of a job, of which only arrays can be carried from turn to turn."""
        task = make_task(row, self.tables)
        shuffles = known.shuffles
        orders = Orders(
            batch_size(self.federation, self.solver.work),
            lambda _: shuffles[0],
            shuffles,
            sequential=False,
        )
        steps_of_client = train_by_steps(self.solver, self.federation, row.hyper)
        return task, orders, steps_of_client(task, known.course, orders)

    def _do_steps(self, block: int, row: QueuedJobs, known: _Known, state: Tree, at: Array) -> Tree:
        """Do the steps at, at + 1, … of a job, at most `block`."""
        _, orders, steps = self._steps(row, known)

        def step(number: Array, state: Tree) -> Tree:
            return steps.visit(state, steps_at(known.course, orders, number), number)

        # A lane whose job ends within the block waits for the others
        ahead = takes_steps_in_products(self.solver)
        return do_steps(block, at, known.course.total, step, state, ahead)

    def _finish(self, row: QueuedJobs, known: _Known, state: Tree) -> Updates:
        task, _, steps = self._steps(row, known)
        return send_update(
            self.solver, self.sends, self.federation, row.hyper, task, steps.end(state)
        )


# At least this number of clients train side by side: fewer would not keep an accelerator busy
MIN_LANES = 128
# If the updates of all participants have at most this number of bytes, they are held at once
MAX_HELD_BYTES = 1 << 28
# Otherwise participants train in blocks whose updates have about this number of bytes
BLOCK_BYTES = 1 << 26


class RoundCost(NamedTuple):
    """The cost of a round in which a fixed number of clients train side by side at a time."""

    # The number of steps that are done one after another
    in_a_row: int
    # The number of steps of single clients that are computed, including those of clients that wait
    computed: int


def typical_steps(steps: np.ndarray, participants: int) -> np.ndarray:
    """Return typical steps of a round's S participants, i64[S], descending, as quantiles of the
    steps i64[C] of all clients."""
    quantile = ((np.arange(participants) + 0.5) / participants * len(steps)).astype(np.int64)
    return np.sort(steps)[::-1][quantile]


def count_round_cost(steps: np.ndarray, width: int, block: int = 0) -> RoundCost:
    """Compute the cost of a round of clients with these steps i64[S], descending, of which `width`
    train at a time. `block`: they are divided into blocks of this number first. A width of 0 means
    all clients of a block, a block of 0 all clients."""
    number = len(steps)
    block = min(block or number, number)
    width = min(width or block, block)
    in_a_row = int(steps[np.arange(number) % block % width == 0].sum())
    return RoundCost(in_a_row, in_a_row * width)


def choose_width(steps: np.ndarray, block: int = 0) -> int:
    """Choose the number of clients to train at a time in each block of participants; 0: all of the
    block. Candidates are MIN_LANES and larger even parts of a block. The best candidate has the
    smallest sum of two ratios: its steps in a row to the steps of training all at once, and its
    computed steps to the clients' real steps. With small parts, neither ratio is much above 2."""
    number = min(block or len(steps), len(steps))
    at_once = count_round_cost(steps, 0, block).in_a_row
    real = int(steps.sum())

    def price(width: int) -> float:
        round_ = count_round_cost(steps, width, block)
        return round_.in_a_row / max(at_once, 1) + round_.computed / max(real, 1)

    # Parts by powers of √2
    parts = (-(-number // int(2 ** (i / 2))) for i in range(2, 40))
    candidates = (0, *(width for width in (*parts, MIN_LANES) if MIN_LANES <= width < number))
    return min(candidates, key=price)


def choose_block(participants: int, size: int) -> int:
    """Return the number of participants in a block, for methods that need only sums of updates
    f32[size]; 0: all at once."""
    return 0 if 4 * participants * size <= MAX_HELD_BYTES else max(8, BLOCK_BYTES // (4 * size))
