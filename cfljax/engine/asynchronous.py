"""Buffered asynchronous aggregation (`train.asynchronous`; FedBuff, Nguyen et al. 2022) inside clusters, on the simulated clock.

M clients are under way at a time. A round of the engine is one step of the server:

1. Clients are drawn for the free places. They get the current models, choose their cluster and train. The simulator does this at
   once; their updates, clusters and times of arrival are kept (`types.Flight`).
2. The server waits until `buffer` updates have arrived, or all that are under way, if these are fewer. The earliest count, and of
   equally early ones those with the lowest identities. The clock then stands at the arrival of the last of them.
3. Each cluster is moved by those of its own updates that are among them, each with its usual weight times s(τ); τ, the staleness,
   is how many steps the server has done since the client got its models.

Methods see a cohort with a place for each client under way (`local.flight`). As for a deadline, a round is computed twice: of the
first time only the steps and bytes of those who begin are used, and XLA leaves the training out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cfljax.engine.settings import Asynchronous, Wall
from cfljax.engine.wall import MOST_CLUSTERS, Go, Spent, add_to, metered, of_round, plus, until_next
from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.types import Array, Cohort, Federation, Flight, Hyper, Info, Traffic, Tree

DISCOUNTS: dict[str, Callable[[Array, Hyper], Array]] = {
    "none": lambda late, _: jnp.ones_like(late),
    "polynomial": lambda late, hyper: (1 + late) ** -hyper["asynchronous.exponent"],
    "hinge": lambda late, hyper: 1 / (1 + hyper["asynchronous.slope"] * jnp.maximum(late - hyper["asynchronous.grace"], 0)),
}
"""s(τ) of Xie et al. 2019, of staleness f32[M]; FedBuff's is "polynomial"."""
Outcome = tuple[tuple[Tree, Info], Wall, Flight]
"""((state, report), clock, clients under way) after a step."""


def started(settings: Asynchronous, places: int, models: int, size: int) -> Flight:
    """M free places, before the first step of a run with this number of models of this size."""
    whole, numbers = jnp.zeros(places, jnp.int32), jnp.zeros(places)
    return Flight(
        ids=whole,
        busy=jnp.zeros(places, bool),
        left=numbers,
        begun=whole - 1,
        work=numbers,
        up=jnp.zeros((places, 2), jnp.int32),
        which=whole,
        delta=jnp.zeros((places, size)),
        loss=numbers,
        home=jnp.zeros((places, settings.home)) if settings.home else None,
        staleness=jnp.int32(0),
        arrived=jnp.int32(0),
        applied=jnp.zeros(models if models <= MOST_CLUSTERS else 0, jnp.int32),
    )


def shown(flight: Flight) -> dict[str, Array]:
    """What the history has of it: the mean staleness of all updates so far, and how many each cluster has had."""
    applied = {"diag/applied": flight.applied} if flight.applied.shape[0] else {}
    return {"staleness": flight.staleness / jnp.maximum(flight.arrived, 1)} | applied


def boarded(flight: Flight, cohort: Cohort) -> Flight:
    """The flight in which the participants of the cohort have taken their places."""
    begun = jnp.where(cohort.mask, cohort.round, flight.begun)
    return flight._replace(ids=cohort.ids, begun=begun, work=jnp.where(cohort.mask, cohort.work, flight.work))


def with_flight(info: Info, flight: Flight) -> Info:
    """The report with the flight, which a round that is only timed does not know of."""
    if flight.arrives is None:
        return info._replace(flight=flight)
    if info.flight is None:
        raise SpecError("train.asynchronous: the method mixes no updates by averages(…) and train_and_mix(…); leave it out for it")
    return info


def step(
    go: Go,
    settings: Asynchronous,
    vector: tuple[float, float],
    models: Callable[[Tree], tuple[Array, Array]],
    wall: Wall | None,
    flight: Flight | None,
    federation: Federation,
    hyper: Hyper,
    t: Array,
) -> Outcome:
    """Step t of the server. The arguments are those of `wall.timed`."""
    assert wall is not None and flight is not None and federation.devices is not None
    before: Flight = flight
    devices = of_round(federation.devices, hyper, wall.elapsed.high, t)
    here = dataclasses.replace(federation, devices=devices, flight=before)
    (_, timed), spent = metered(go, vector, here, hyper)
    assert timed.flight is not None
    new = timed.flight.begun == t
    there, flight = new | flight.busy, _begun(timed.flight, new, spent)
    arrives = _first(settings.buffer, flight, there, federation.uid)
    lasts = jnp.max(flight.left, initial=0.0, where=arrives)
    lasts = jnp.where(there.any(), lasts, until_next(here, wall.elapsed.high, t))
    late = jnp.where(arrives, t - flight.begun, 0)
    discount = DISCOUNTS[settings.staleness](late.astype(jnp.float32), hyper)
    known = dataclasses.replace(here, flight=before._replace(arrives=arrives, discount=discount))
    state, info = go(known)
    assert info.flight is not None
    took = _of_clients(federation, flight, jnp.where(there, jnp.minimum(flight.left, lasts), 0.0))
    came = _of_clients(federation, flight, arrives.astype(jnp.float32)) > 0
    labels = jnp.where(came, models(state)[1], -1)
    ahead = _of_clients(federation, flight, jnp.where(before.busy, before.left - flight.left, 0.0))  # while others sent
    wall = wall._replace(
        elapsed=plus(wall.elapsed, lasts + spent.before),
        busy=plus(wall.busy, jnp.sum(took + ahead)),
        waited=add_to(wall.waited, labels, lasts - took),
    )
    after = info.flight._replace(
        busy=there & ~arrives,
        left=jnp.where(there & ~arrives, flight.left - lasts, 0.0),
        up=flight.up,
        staleness=flight.staleness + jnp.sum(late),
        arrived=flight.arrived + jnp.sum(arrives, dtype=jnp.int32),
        applied=add_to(flight.applied, labels, jnp.int32(1)),
        arrives=None,
        discount=None,
    )
    info = info._replace(traffic=_on_arrival(info.traffic, flight.up, new, arrives), flight=None)
    return (state, info), wall, after


def _begun(flight: Flight, new: Array, spent: Spent) -> Flight:
    """The flight with the times and the messages of those who begin, new bool[M]. What is sent before a round begins takes its time
    of all others, too."""
    each = jnp.stack([spent.own.vectors_up, spent.own.floats_up]) // jnp.maximum(jnp.sum(new), 1)
    left = jnp.where(new, spent.each[flight.ids], jnp.maximum(flight.left - spent.before, 0.0))
    return flight._replace(left=left, up=jnp.where(new[:, None], each, flight.up))


def _first(buffer: int, flight: Flight, there: Array, uid: Array) -> Array:
    """bool[M]: the `buffer` earliest of those who are there bool[M], or all of them if they are fewer."""
    order = jnp.lexsort((uid[flight.ids], jnp.where(there, flight.left, jnp.inf)))
    return there & (jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0])) < buffer)


def _of_clients(federation: Federation, flight: Flight, each: Array) -> Array:
    """f32[C]: the numbers of the places f32[M] at the clients that are in them, in whose order sums are taken; 0 elsewhere."""
    return jnp.zeros(federation.clients).at[flight.ids].add(each)


def _on_arrival(traffic: Traffic, up: Array, new: Array, arrives: Array) -> Traffic:
    """The traffic of a step: what those who begin will send, up i32[M, 2], counts when it arrives."""
    vectors, floats = jnp.sum(jnp.where(arrives[:, None], up, 0) - jnp.where(new[:, None], up, 0), axis=0)
    return traffic._replace(vectors_up=traffic.vectors_up + vectors, floats_up=traffic.floats_up + floats)
