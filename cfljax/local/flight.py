"""Updates that arrive in a later round than the one that computed them (`train.asynchronous`), as
methods see them.

Methods train the participants of a round and mix their updates, and need not know that these are
different clients. With updates in flight (`ClientState.flight`), the cohort of a round has a slot
for each of them. Clients in free slots train; `averages` weighs the updates that arrive;
`train_and_mix` adds the new updates to the old ones, and mixes them by these weights; the report
covers the updates that arrive, and carries the flight to the engine."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.lazy import jnp
from cfljax.types import Array, ClientState, Cohort, Flight, Jobs, Updates


class Arriving(NamedTuple):
    """The clients whose updates are mixed in a round: updates that arrive in it, or without a
    flight its participants."""

    # i32[S]
    ids: Array
    # bool[S]
    mask: Array
    # f32[S]
    work: Array
    # i32[S]: the cluster that each has trained for
    which: Array
    # f32[S]: factors of their parts of a mean; None: they are 1
    discount: Array | None


def find_flight(kept: ClientState) -> Flight | None:
    """Return the flight if it is known which updates arrive; None: all updates are mixed in their
    round."""
    flight = kept.flight
    return None if flight is None or flight.arrives is None else flight


def select_arriving(cohort: Cohort, which: Array) -> Arriving:
    """Return the clients whose updates are mixed in a round with this cohort, which trains for the
    clusters `which` i32[S]."""
    if (flight := find_flight(cohort.kept)) is None or flight.arrives is None:
        return Arriving(cohort.ids, cohort.mask, cohort.work, which, None)
    # Slots whose client trains in this round have its work and cluster, the others those of the
    # round in which their client trained
    work = jnp.where(cohort.mask, cohort.work, flight.work)
    trained_for = jnp.where(cohort.mask, which, flight.which)
    return Arriving(cohort.ids, flight.arrives, work, trained_for, flight.discount)


def join_flight(
    flight: Flight, jobs: Jobs, which: Array, updates: Updates
) -> tuple[Updates, Flight]:
    """Put the updates of the jobs, for the clusters `which` i32[M], into the flight: (the updates
    of all slots, the flight)."""

    def put(new: Array, old: Array) -> Array:
        return jnp.where(jobs.mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    home = None if updates.home is None or flight.home is None else put(updates.home, flight.home)
    flight = flight._replace(
        work=put(jobs.work, flight.work),
        which=put(which, flight.which),
        delta=put(updates.delta, flight.delta),
        loss=put(updates.loss, flight.loss),
        home=home,
    )
    return updates._replace(delta=flight.delta, loss=flight.loss, home=home), flight
