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
from cfljax.local.schedule import (
    STEPS,
    Course,
    Orders,
    Stepwise,
    Task,
    batch_size,
    count_work,
    group_steps,
    make_orders,
    steps_at,
)
from cfljax.local.ways import Setting, make_trainer, send_update, train_by_steps
from cfljax.types import Array, Federation, Hyper, Tree, Updates

MIN_JOBS = 128
"""H200, a round of W1: 20 clients take 8.2 ms in lockstep and 10.1 in a queue, 320 take 122 and 54,
5,120 take 2,219 and 152."""


class Rows(NamedTuple):
    """The jobs of a round, [S, …] each; models are given as rows of `Tables`."""

    # Without models: `start`, `anchor` and `velocity` are None
    task: Task
    # i32[S] the row of `Tables.start` and of `Tables.velocity`
    which: Array
    # i32[S] the row of `Tables.anchor`
    anchor_of: Array
    # The numbers of each job's run, f32[S]
    hyper: Hyper


class Tables(NamedTuple):
    """Models that jobs refer to."""

    start: Array
    anchor: Array | None
    velocity: Array | None


def make_task(row: Rows, tables: Tables) -> Task:
    """Return the job of one row with its models."""
    of = lambda table, at: None if table is None else table[at]  # noqa: E731
    models = (
        tables.start[row.which],
        of(tables.anchor, row.anchor_of),
        of(tables.velocity, row.which),
    )
    return row.task._replace(start=models[0], anchor=models[1], velocity=models[2])


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
def make_queue(solver: Setting, sends: bool) -> Callable[[Federation, Rows, Tables], Updates]:
    """Return the function that trains jobs in the lanes of the solver's plan. Under `vmap` all
    runs' jobs form one queue."""

    def in_lockstep(federation: Federation, rows: Rows, tables: Tables) -> Updates:
        return jax.vmap(
            lambda row: make_trainer(solver, sends, federation, row.hyper)(make_task(row, tables))
        )(rows)

    @custom_vmap()
    def train(federation: Federation, rows: Rows, tables: Tables) -> Updates:
        return _train(solver, sends, federation, rows, tables)

    @train.def_vmap
    def _(
        runs: int, mapped: list[Tree], federation: Federation, rows: Rows, tables: Tables
    ) -> tuple[Updates, Tree]:
        axes = jax.tree.map(lambda each: 0 if each else None, tuple(mapped))
        # Each run has a federation of its own
        if any(jax.tree.leaves(mapped[0])):
            updates: Updates = jax.vmap(in_lockstep, in_axes=axes, axis_size=runs)(
                federation, rows, tables
            )
            return updates, jax.tree.map(lambda _: True, updates)
        add = lambda each, has: each if has else jnp.broadcast_to(each, (runs, *each.shape))  # noqa: E731
        rows, tables = jax.tree.map(add, (rows, tables), tuple(mapped[1:]))
        first = jnp.arange(runs, dtype=jnp.int32)[:, None]
        which = rows.which + first * tables.start.shape[1]
        anchor_of = (
            rows.anchor_of
            + first * (tables.start if tables.anchor is None else tables.anchor).shape[1]
        )
        rows = rows._replace(which=which, anchor_of=anchor_of)
        flat = lambda tree: jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)  # noqa: E731
        updates = train(federation, flat(rows), flat(tables))
        updates = jax.tree.map(lambda a: a.reshape(runs, -1, *a.shape[1:]), updates)
        return updates, jax.tree.map(lambda _: True, updates)

    return train


def _train(
    solver: Setting, sends: bool, federation: Federation, rows: Rows, tables: Tables
) -> Updates:
    number, longest = rows.which.shape[0], federation.train.longest
    lanes, block = min(solver.plan.queue, number), group_steps(solver.work, longest)

    def orders(row: Rows) -> tuple[Course, Array]:
        course = count_work(federation, row.task, solver.work, False)._replace(most=None)
        shuffles = make_orders(federation, row.task, course, solver.work, solver.plan, longest, ())
        assert shuffles is not None and shuffles.all is not None
        return course, shuffles.all

    def steps_of(row: Rows, known: tuple[Course, Array]) -> tuple[Task, Orders, Stepwise]:
        task, (course, shuffles) = make_task(row, tables), known
        order = Orders(
            batch_size(federation, solver.work), lambda _: shuffles[0], shuffles, sequential=False
        )
        return task, order, train_by_steps(solver, federation, row.hyper)(task, course, order)

    def some_steps(row: Rows, known: tuple[Course, Array], state: Tree, at: Array) -> Tree:
        _, order, steps = steps_of(row, known)

        def one(i: Array, state: Tree) -> Tree:
            new = steps.visit(state, steps_at(known[0], order, at + i), at + i)
            return jax.tree.map(
                lambda new, old: jnp.where(at + i < known[0].total, new, old), new, state
            )

        return jax.lax.fori_loop(0, block, one, state)

    def end(row: Rows, known: tuple[Course, Array], state: Tree) -> Updates:
        task, _, steps = steps_of(row, known)
        return send_update(solver, sends, federation, row.hyper, task, steps.end(state))

    known = jax.vmap(orders)(rows)
    states = jax.vmap(lambda row, known: steps_of(row, known)[2].begin())(rows, known)
    total = known[0].total
    # The first job once more, for lanes that have nothing to do: nobody reads what comes of it.
    padded = jnp.append(jnp.arange(number), 0)
    job_rows, job_known, states = jax.tree.map(lambda each: each[padded], (rows, known, states))
    queue = jnp.concatenate(
        [jnp.argsort(-total).astype(jnp.int32), jnp.full(lanes, number, jnp.int32)]
    )

    def turn(carry: tuple[Tree, Array, Array, Array]) -> tuple[Tree, Array, Array, Array]:
        states, job, at, taken = carry
        row, facts, state = jax.tree.map(lambda each: each[job], (job_rows, job_known, states))
        state = jax.vmap(some_steps)(row, facts, state, at)
        states = jax.tree.map(lambda whole, new: whole.at[job].set(new), states, state)
        at = at + block
        done = at >= facts[0].total
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
    return jax.vmap(end)(rows, known, jax.tree.map(lambda each: each[:number], states))


# At least this number of clients train side by side: fewer would not keep an accelerator busy
MIN_LANES = 128
# If the updates of all participants have at most this number of bytes, they are held at once
MAX_HELD_BYTES = 1 << 28
# Otherwise participants train in blocks whose updates have about this number of bytes
BLOCK_BYTES = 1 << 26


class Packed(NamedTuple):
    """The cost of a round in which a fixed number of clients train side by side at a time."""

    # The number of steps that are done one after another
    in_a_row: int
    # The number of steps of single clients that are computed, including those of clients that wait
    computed: int


def typical_steps(steps: np.ndarray, participants: int) -> np.ndarray:
    """Return typical steps of a round's S participants, i64[S], descending, as quantiles of the
    steps i64[C] of all clients."""
    at = ((np.arange(participants) + 0.5) / participants * len(steps)).astype(np.int64)
    return np.sort(steps)[::-1][at]


def pack(steps: np.ndarray, width: int, block: int = 0) -> Packed:
    """Compute the cost of a round of clients with these steps i64[S], descending, of which `width`
    train at a time. `block`: they are divided into blocks of this number first. A width of 0 means
    all clients of a block, a block of 0 all clients."""
    number = len(steps)
    block = min(block or number, number)
    width = min(width or block, block)
    in_a_row = int(steps[np.arange(number) % block % width == 0].sum())
    return Packed(in_a_row, in_a_row * width)


def choose_width(steps: np.ndarray, block: int = 0) -> int:
    """Choose the number of clients to train at a time in each block of participants; 0: all of the
    block. Candidates are MIN_LANES and larger even parts of a block. The best candidate has the
    smallest sum of two ratios: its steps in a row to the steps of training all at once, and its
    computed steps to the clients' real steps. With small parts, neither ratio is much above 2."""
    number = min(block or len(steps), len(steps))
    at_once, real = pack(steps, 0, block).in_a_row, int(steps.sum())

    def price(width: int) -> float:
        round_ = pack(steps, width, block)
        return round_.in_a_row / max(at_once, 1) + round_.computed / max(real, 1)

    even = (-(-number // int(2 ** (i / 2))) for i in range(2, 40))
    return min(
        (0, *(width for width in (*even, MIN_LANES) if MIN_LANES <= width < number)), key=price
    )


def choose_block(participants: int, size: int) -> int:
    """Return the number of participants in a block, for methods that need only sums of updates
    f32[size]; 0: all at once."""
    return 0 if 4 * participants * size <= MAX_HELD_BYTES else max(8, BLOCK_BYTES // (4 * size))
