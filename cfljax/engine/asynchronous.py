"""Buffered asynchronous aggregation (`train.asynchronous`; FedBuff, Nguyen et al. 2022) inside
clusters, on the simulated clock.

M updates are in flight at a time. A round of the engine is one step of the server:

1. Clients are drawn for the free slots. They get the current models, choose their cluster and
   train. The simulator does this at once, and stores their updates, clusters and times of arrival
   (`types.Flight`).
2. The server waits until `buffer` updates have arrived, or all that are in flight if there are
   fewer. The earliest count, in a tie those with the lowest identities. The clock moves to the
   arrival of the last of them.
3. Each cluster is moved by its own updates among them, each with its usual weight times s(τ); τ,
   the staleness, is how many steps the server has done since the client got its models.

Methods see a cohort with a slot for each update in flight (`local.flight`). As for a deadline, a
round is computed twice: from the first pass only the steps and bytes of the clients that start are
used, and XLA leaves the training out."""

from __future__ import annotations

from cfljax.engine.settings import Asynchronous, Carry, Settings, Wall
from cfljax.engine.wall import (
    MAX_TIMED_CLUSTERS,
    RunRound,
    add,
    add_by_label,
    devices_in_round,
    run_metered,
    seconds_to_next,
)
from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.types import Array, ClientState, Cohort, Federation, Flight, Hyper, Info, Models, Tree


def start_flight(settings: Asynchronous, slots: int, models: int, size: int) -> Flight:
    """Make M free slots, before the first step of a run with this number of models of this size."""
    whole = jnp.zeros(slots, jnp.int32)
    numbers = jnp.zeros(slots)
    return Flight(
        ids=whole,
        busy=jnp.zeros(slots, bool),
        left=numbers,
        begun=whole - 1,
        work=numbers,
        up=jnp.zeros((slots, 2), jnp.int32),
        which=whole,
        delta=jnp.zeros((slots, size)),
        loss=numbers,
        home=jnp.zeros((slots, settings.home)) if settings.home else None,
        staleness=jnp.int32(0),
        arrived=jnp.int32(0),
        applied=jnp.zeros(models if models <= MAX_TIMED_CLUSTERS else 0, jnp.int32),
    )


def format_flight(flight: Flight) -> dict[str, Array]:
    """Return the history's columns: the mean staleness of all updates so far, and the number of
    updates of each cluster."""
    applied = {"diag/applied": flight.applied} if flight.applied.shape[0] else {}
    return {"staleness": flight.staleness / jnp.maximum(flight.arrived, 1)} | applied


def board(flight: Flight, cohort: Cohort) -> Cohort:
    """Put the participants of the cohort into their slots of the flight."""
    begun = jnp.where(cohort.mask, cohort.round, flight.begun)
    flight = flight._replace(
        ids=cohort.ids, begun=begun, work=jnp.where(cohort.mask, cohort.work, flight.work)
    )
    return cohort._replace(kept=cohort.kept._replace(flight=flight))


def add_flight(info: Info, flight: Flight | None) -> Info:
    """Add the flight to the report; a round that is only timed ignores it."""
    if flight is None or flight.arrives is None:
        return info._replace(kept=info.kept._replace(flight=flight))
    if info.kept.flight is None:
        raise SpecError(
            "train.asynchronous: the method mixes no updates by averages(…) and "
            "train_and_mix(…); leave it out for it"
        )
    return info


def step(
    go: RunRound,
    settings: Settings,
    models: Models,
    carry: Carry,
    federation: Federation,
    hyper: Hyper,
    t: Array,
) -> tuple[tuple[Tree, Info], Wall, Flight]:
    """Do step t of the server after the state in `carry`, and return ((state, report), clock,
    updates in flight). The other arguments are as for `wall.run_timed`."""
    vector = settings.clock
    how = settings.asynchronous
    wall = carry.wall
    before = carry.flight
    assert (
        wall is not None
        and before is not None
        and federation.devices is not None
        and vector is not None
        and how is not None
    )

    # First pass: who starts in this step, and how long each takes. Nothing reads its state, so that
    # XLA leaves the training out
    devices = devices_in_round(federation.devices, hyper, wall.elapsed.high, t)
    (_, timed), spent = run_metered(go, vector, ClientState(devices=devices, flight=before), hyper)
    assert timed.kept.flight is not None
    new = timed.kept.flight.begun == t
    in_flight = new | before.busy
    flight = timed.kept.flight
    each = jnp.stack([spent.own.vectors_up, spent.own.floats_up]) // jnp.maximum(jnp.sum(new), 1)
    # Messages sent before a round begins delay all others, too
    left = jnp.where(new, spent.each[flight.ids], jnp.maximum(flight.left - spent.before, 0.0))
    flight = flight._replace(left=left, up=jnp.where(new[:, None], each, flight.up))

    # Sums over clients are taken in their order, not in that of slots, on which bits would depend
    def put_on_clients(each: Array) -> Array:
        return jnp.zeros(federation.clients).at[flight.ids].add(each)

    # The updates that arrive: the earliest, in a tie by identity
    order = jnp.lexsort((federation.uid[flight.ids], jnp.where(in_flight, flight.left, jnp.inf)))
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
    arrives = in_flight & (rank < how.buffer)
    lasts = jnp.max(flight.left, initial=0.0, where=arrives)
    lasts = jnp.where(
        in_flight.any(), lasts, seconds_to_next(federation, devices, wall.elapsed.high, t)
    )
    staleness = jnp.where(arrives, t - flight.begun, 0)
    # s(τ) of FedBuff and of Xie et al. 2019
    discount = (1 + staleness.astype(jnp.float32)) ** -hyper["asynchronous.exponent"]

    # Second pass: the round with these updates
    state, info = go(
        ClientState(devices=devices, flight=before._replace(arrives=arrives, discount=discount))
    )
    assert info.kept.flight is not None
    took = put_on_clients(jnp.where(in_flight, jnp.minimum(flight.left, lasts), 0.0))
    arrived = put_on_clients(arrives.astype(jnp.float32)) > 0
    labels = jnp.where(arrived, models(state)[1], -1)
    # What clients under way did while others sent their messages before the round
    ahead = put_on_clients(jnp.where(before.busy, before.left - flight.left, 0.0))
    wall = wall._replace(
        elapsed=add(wall.elapsed, lasts + spent.before),
        busy=add(wall.busy, jnp.sum(took + ahead)),
        waited=add_by_label(wall.waited, labels, lasts - took),
    )
    after = info.kept.flight._replace(
        busy=in_flight & ~arrives,
        left=jnp.where(in_flight & ~arrives, flight.left - lasts, 0.0),
        up=flight.up,
        staleness=flight.staleness + jnp.sum(staleness),
        arrived=flight.arrived + jnp.sum(arrives, dtype=jnp.int32),
        applied=add_by_label(flight.applied, labels, jnp.int32(1)),
        arrives=None,
        discount=None,
    )
    # Traffic counts in the step in which it arrives
    vectors, floats = jnp.sum(
        jnp.where(arrives[:, None], flight.up, 0) - jnp.where(new[:, None], flight.up, 0), axis=0
    )
    sent = info.traffic
    sent = sent._replace(vectors_up=sent.vectors_up + vectors, floats_up=sent.floats_up + floats)
    return (state, info._replace(traffic=sent)), wall, after
