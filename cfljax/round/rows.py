"""`round_of_rows`: the round of methods that keep a row of numbers for each client, perhaps beside
models or vectors of the server.

The participants' rows are taken, and they train. Each row moves by what the training made of it, if
that is finite, and is written back. Then the server does its step. The recipes differ in this:

| | a row | the server has | participants train | the row moves by |
| --- | --- | --- | --- | --- |
| `AtHome` | what stays with a client | a model w | w, and beside it the row | the row's training |
| `Peers` | a client's model | perhaps prototypes | the row, or a mixture of rows | the update |
| `Controlled` | a vector c_i | a model w, the mean c | w, corrected by c_i | the change of c_i |
| FedBCD | a client's model | a model z | the row, pulled to z | the update |
| FedSoft | a client's model | K models | the row, pulled to their mixture | the update |

The server of `AtHome` moves w to the mean of the trained ones, that of `Controlled` w and c by the
mean messages, that of FedBCD z to the mean of all rows, that of FedSoft each model to the mean of
the rows that it has drawn, and that of `Peers` does what the method says (`exchange`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from cfljax.kernels.mix import usable
from cfljax.lazy import jnp
from cfljax.local.reports import report
from cfljax.local.solver import Solver
from cfljax.round.ask import Ask
from cfljax.round.common import keep_own
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Updates


class HasRows(Protocol):
    """A NamedTuple with a row for each client, and what else a method has between two rounds."""

    @property
    def rows(self) -> Array:
        """f32[C, m]: the rows."""

    @property
    def drawn(self) -> Array:
        """bool[C]: which rows have been trained."""

    def _replace(self, *args: Any, **fields: Any) -> Any: ...


State = TypeVar("State", bound=HasRows)


class RowUpdates(NamedTuple):
    """What the training of a round has made of the participants' models and rows."""

    jobs: Jobs
    """What they have trained."""
    updates: Updates
    """Their updates, as the server receives them if they are sent."""
    start: Array
    """f32[S, m]: what their rows move from."""
    change: Array
    """f32[S, m]: what their rows move by."""
    more: Array | None = None
    """What else the server's step needs; None: nothing."""


def round_of_rows(
    solver: Solver,
    train: Callable[[Ask, State, Array], RowUpdates],
    merge: Callable[[Ask, State, State, RowUpdates], tuple[State, Array]],
) -> Callable[[Array, State, Federation, Cohort, Hyper], tuple[State, Info]]:
    """Return the function `Method.round`.

    Args:
        solver: The solver of the run. A method's state is a NamedTuple with `rows` f32[C, m] and
            `drawn` bool[C], which rows have been trained.
        train: (participants, state, their rows f32[S, m]) -> what they train. It sends them what
            they need, and bills what they send.
        merge: (participants, state before the round, the same with their new rows, what they have
            trained) -> (the state after the server's step, f32[S, d] the models that participants
            have then, for the report).

    Example:
        ```python
        def train(ask, state, rows):
            jobs = jobs_from(ask.cohort, rows, jnp.arange(len(rows)))
            updates = solver.fit(ask.key, ask.federation, jobs, ask.hyper)
            ask.upload()
            return RowUpdates(jobs, updates, rows, updates.delta)

        def merge(ask, before, after, done):
            return after, after.rows[ask.cohort.ids]

        method = Method(init, round_of_rows(solver, train, merge), models)
        ```
    """

    def round(
        key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        ask = Ask(solver, key, federation, cohort, hyper)
        done = train(ask, state, state.rows[cohort.ids])

        # A method may leave out participants
        cohort = cohort._replace(mask=done.jobs.mask)
        # The row of a participant whose change is not finite stays as it was
        finite = usable(done.change)
        kept = keep_own(cohort, done.change, done.start)
        after = state._replace(
            rows=cohort.write(state.rows, kept.new, finite),
            drawn=cohort.write(state.drawn, True, finite),
        )
        after, end = merge(ask, state, after, done)

        # A participant is counted once, whichever of its update and its change is not finite
        broken = cohort.mask & ~(usable(done.updates.delta) & finite)
        mixed = kept._replace(nonfinite=jnp.sum(broken, dtype=jnp.int32))
        updates = done.updates._replace(steps=done.updates.steps + ask.total("steps"))
        start = done.jobs.start[done.jobs.which]
        info = report(federation, cohort, updates, start, end, mixed, ask.bill(), **ask.shown)
        return after, info

    return round
