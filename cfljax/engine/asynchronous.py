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

from typing import NamedTuple

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


class Started(NamedTuple):
    """The result of a step's first pass: the updates in flight once the step's clients have
    started."""

    # With the clients that start in their slots, their seconds and their messages
    flight: Flight
    # bool[M]: the slots whose client starts in this step
    new: Array
    # bool[M]: the slots that are taken, by a client that starts now or has started before
    taken: Array
    # f32[]: the seconds of messages that are sent before the clients start
    before: Array


class Arrivals(NamedTuple):
    """The updates that arrive in a step."""

    # bool[M]: the slots of these updates
    slots: Array
    # f32[]: the seconds until the last of them arrives
    lasts: Array
    # i32[M]: τ, how many steps the server has done since the client got its models; 0 for updates
    # that do not arrive
    staleness: Array
    # f32[M]: s(τ)
    discount: Array


def step(
    go: RunRound,
    settings: Settings,
    models: Models,
    carry: Carry,
    federation: Federation,
    hyper: Hyper,
    t: Array,
) -> tuple[tuple[Tree, Info], Wall, Flight]:
    """Do one step of the server, and return ((state, report), clock, updates in flight).

    Args:
      go: Computes the round, given the devices and the flight.
      settings: The settings of the run, with a clock and `asynchronous`.
      models: (state) -> the models and the label of each client.
      carry: The run before the step.
      federation: The clients' data and devices.
      hyper: The numbers of the run.
      t: i32[] the number of the step.
    """
    wall = carry.wall
    flight_before = carry.flight
    assert (
        wall is not None
        and flight_before is not None
        and federation.devices is not None
        and settings.clock is not None
        and settings.asynchronous is not None
    )
    devices = devices_in_round(federation.devices, hyper, wall.elapsed.high, t)

    # Which updates arrive depends on how long the clients take that start in this step, and that is
    # known only when their round has been traced. So the round is computed twice
    started = _time_starts(
        go, settings.clock, ClientState(devices=devices, flight=flight_before), hyper, t
    )
    idle = seconds_to_next(federation, devices, wall.elapsed.high, t)
    arrivals = _find_arrivals(started, federation.uid, settings.asynchronous.buffer, idle, hyper, t)
    known = flight_before._replace(arrives=arrivals.slots, discount=arrivals.discount)
    state, info = go(ClientState(devices=devices, flight=known))
    assert info.kept.flight is not None

    # Sums over clients are taken in the order of clients: the order of slots would decide bits
    def put_on_clients(each: Array) -> Array:
        return jnp.zeros(federation.clients).at[started.flight.ids].add(each)

    # The seconds that each client works until the server's step
    took = put_on_clients(
        jnp.where(started.taken, jnp.minimum(started.flight.left, arrivals.lasts), 0.0)
    )
    arrived = put_on_clients(arrivals.slots.astype(jnp.float32)) > 0
    labels = jnp.where(arrived, models(state)[1], -1)
    # What clients under way did while others sent their messages before the round
    ahead = put_on_clients(
        jnp.where(flight_before.busy, flight_before.left - started.flight.left, 0.0)
    )
    wall = wall._replace(
        elapsed=add(wall.elapsed, arrivals.lasts + started.before),
        busy=add(wall.busy, jnp.sum(took + ahead)),
        waited=add_by_label(wall.waited, labels, arrivals.lasts - took),
    )
    flight = _leave_slots(info.kept.flight, started, arrivals, labels)
    return (state, _bill_arrivals(info, started, arrivals)), wall, flight


def _time_starts(
    go: RunRound, vector: tuple[float, float], kept: ClientState, hyper: Hyper, t: Array
) -> Started:
    """Find who starts in step t and how long each takes: the first pass of the round, in which no
    update is known to arrive. Nothing reads its state, so XLA leaves the training out.

    Args:
      go: Computes the round.
      vector: The bytes of a vector (down, up).
      kept: The devices, and the flight before the step.
      hyper: The numbers of the run.
      t: i32[] the number of the step.
    """
    before = kept.flight
    (_, timed), spent = run_metered(go, vector, kept, hyper)
    flight = timed.kept.flight
    assert before is not None and flight is not None
    new = flight.begun == t
    taken = new | before.busy
    # What one client sends: the round's vectors and floats, split evenly, because all clients of a
    # round send the same
    up = jnp.stack([spent.own.vectors_up, spent.own.floats_up]) // jnp.maximum(jnp.sum(new), 1)
    # Messages sent before a round begins delay all others, too
    left = jnp.where(new, spent.each[flight.ids], jnp.maximum(flight.left - spent.before, 0.0))
    flight = flight._replace(left=left, up=jnp.where(new[:, None], up, flight.up))
    return Started(flight, new, taken, spent.before)


def _find_arrivals(
    started: Started, uid: Array, buffer: int, idle: Array, hyper: Hyper, t: Array
) -> Arrivals:
    """Find the updates that the server waits for in step t: the `buffer` earliest in flight.

    Args:
      started: The updates in flight.
      uid: i32[C] the identities of the clients, which decide ties.
      buffer: How many updates the server waits for.
      idle: f32[] the seconds of a step in which no update is in flight.
      hyper: The numbers of the run.
      t: i32[] the number of the step.
    """
    flight = started.flight
    seconds = jnp.where(started.taken, flight.left, jnp.inf)
    # In a tie by identity: the slot of a client depends on who was there before
    order = jnp.lexsort((uid[flight.ids], seconds))
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
    slots = started.taken & (rank < buffer)
    lasts = jnp.max(flight.left, initial=0.0, where=slots)
    lasts = jnp.where(started.taken.any(), lasts, idle)
    staleness = jnp.where(slots, t - flight.begun, 0)
    # s(τ) of FedBuff and of Xie et al. 2019
    discount = (1 + staleness.astype(jnp.float32)) ** -hyper["asynchronous.exponent"]
    return Arrivals(slots, lasts, staleness, discount)


def _leave_slots(flight: Flight, started: Started, arrivals: Arrivals, labels: Array) -> Flight:
    """Free the slots of the updates that have arrived, and count these.

    Args:
      flight: As the second pass returns it, with the updates of the clients that have started.
      started: The seconds and messages of the first pass.
      arrivals: The updates that have arrived.
      labels: i32[C] the cluster of each client whose update has arrived, −1 for all others.
    """
    stays = started.taken & ~arrivals.slots
    return flight._replace(
        busy=stays,
        left=jnp.where(stays, started.flight.left - arrivals.lasts, 0.0),
        up=started.flight.up,
        staleness=flight.staleness + jnp.sum(arrivals.staleness),
        arrived=flight.arrived + jnp.sum(arrivals.slots, dtype=jnp.int32),
        applied=add_by_label(flight.applied, labels, jnp.int32(1)),
        # Which updates arrive in the next step is not known yet
        arrives=None,
        discount=None,
    )


def _bill_arrivals(info: Info, started: Started, arrivals: Arrivals) -> Info:
    """Count what clients send in the step in which it arrives: the round has billed what the
    starting clients will send."""
    up = started.flight.up
    vectors, floats = jnp.sum(
        jnp.where(arrivals.slots[:, None], up, 0) - jnp.where(started.new[:, None], up, 0), axis=0
    )
    sent = info.traffic
    sent = sent._replace(vectors_up=sent.vectors_up + vectors, floats_up=sent.floats_up + floats)
    return info._replace(traffic=sent)
