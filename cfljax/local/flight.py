"""Updates that arrive in a later round than the one in which they were made (`train.asynchronous`), as methods see it.

Methods train the participants of a round and mix their updates, and need not know that these are not the same clients. While the
federation has a flight (`Federation.flight`), the cohort of a round has a place for each client under way. Those who take a free
place train; `averages` gives weights to the updates that arrive, whoever made them when; `train_and_mix` puts the new updates to
the old ones, and mixes them by these weights; the report is on those that arrive, and takes the flight to the engine.
"""

from __future__ import annotations

from typing import NamedTuple

from cfljax.lazy import jnp
from cfljax.types import Array, Cohort, Federation, Flight, Jobs, Updates


class Arriving(NamedTuple):
    """The clients whose updates are mixed in a round: those who arrive in it, or without a flight its participants."""

    ids: Array
    """i32[S]."""
    mask: Array
    """bool[S]."""
    work: Array
    """f32[S]."""
    which: Array
    """i32[S]: the cluster that each has trained for."""
    discount: Array | None
    """f32[S]: factors of their parts of a mean; None: they are 1."""


def under_way(federation: Federation) -> Flight | None:
    """The flight of a round in which it is known who arrives; None: all updates are mixed in their round."""
    flight = federation.flight
    return None if flight is None or flight.arrives is None else flight


def arriving(federation: Federation, cohort: Cohort, which: Array) -> Arriving:
    """The clients whose updates are mixed in a round with this cohort, whose members train for the clusters `which` i32[S]."""
    if (flight := under_way(federation)) is None or flight.arrives is None:
        return Arriving(cohort.ids, cohort.mask, cohort.work, which, None)
    work, of = (jnp.where(cohort.mask, new, old) for new, old in ((cohort.work, flight.work), (which, flight.which)))
    return Arriving(cohort.ids, flight.arrives, work, of, flight.discount)


def heard(federation: Federation, cohort: Cohort) -> Cohort:
    """The cohort of those whose updates are mixed in this round, for means over them."""
    flight = under_way(federation)
    return cohort if flight is None or flight.arrives is None else cohort._replace(mask=flight.arrives)


def present(federation: Federation, cohort: Cohort) -> Array:
    """bool[S]: the participants of a round, and those who are under way from earlier ones."""
    flight = under_way(federation)
    return cohort.mask if flight is None else cohort.mask | flight.busy


def joined(flight: Flight, jobs: Jobs, which: Array, updates: Updates) -> tuple[Updates, Flight]:
    """(the updates of all places, the flight that has them) after the jobs have been done, for the clusters `which` i32[M]."""

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
