"""The simulated clock: how long a round lasts on the clients' devices, and which clients miss the
deadline.

A participant receives, computes and sends, one after the other:

seconds = bytes down · 8 / (down_mbps · 10⁶) + steps · step_ms / 1000 / speed + bytes up · 8 /
(up_mbps · 10⁶)

Its steps are summed over all its trainings in the round. Its bytes are the round's, split evenly
over the participants. A round lasts as long as its slowest participant, or `deadline_s` if a client
is late. Messages that clients send to be clustered, before a round begins, come on top: the time
that one client takes to send them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.engine.settings import Sum, Wall
from cfljax.errors import SpecError
from cfljax.federation import cohort
from cfljax.lazy import jnp
from cfljax.types import (
    Array,
    ClientState,
    Devices,
    DevicesNow,
    Federation,
    Hyper,
    Info,
    Models,
    Traffic,
    Tree,
)

# With more models than these, the waiting time of each cluster is not recorded
MAX_TIMED_CLUSTERS = 64
# The largest relative rounding error of the clock: four steps of float32
CLOCK_ERROR = 2.0**-21
# Computes a round, given the devices and the updates in flight: (state after it, report)
RunRound = Callable[[ClientState], tuple[Tree, Info]]


class RoundTime(NamedTuple):
    """The time of a round."""

    # f32[C]: the seconds of each participant; 0 for other clients
    each: Array
    # bool[C]: the participants
    who: Array
    # f32[]: the seconds of messages that are sent before the round begins
    before: Array
    # The traffic of the round, without messages that are sent before it begins
    own: Traffic


def start_clock(models: int, hyper: Hyper) -> Wall:
    """Start the clock before the first round, for a run with this number of models."""
    zero = Sum(jnp.float32(0), jnp.float32(0))
    late = jnp.int32(0) if "clock.deadline_s" in hyper else None
    return Wall(zero, zero, late, jnp.zeros(models if models <= MAX_TIMED_CLUSTERS else 0))


def format_clock(wall: Wall) -> dict[str, Array]:
    """Return the history's columns: f32[2, 2] seconds of the run and of its devices, two numbers
    each, and how many were late."""
    more = {"diag/waited_s": wall.waited} if wall.waited.shape[0] > 1 else {}
    late = {} if wall.late is None else {"late": wall.late}
    return {"clock": jnp.stack([jnp.stack(wall.elapsed), jnp.stack(wall.busy)])} | late | more


def run_timed(
    go: RunRound,
    vector: tuple[float, float],
    models: Models,
    wall: Wall | None,
    federation: Federation,
    hyper: Hyper,
    t: Array,
) -> tuple[tuple[Tree, Info], Wall]:
    """Run round t, move the clock, and return ((state, report), the clock).

    Args:
      go: Computes the round.
      vector: The bytes of a vector (down, up).
      models: (state) -> the models and the label of each client.
      wall: The clock before the round.
      federation: The clients' data and devices.
      hyper: The numbers of the run.
      t: i32[] the round.
    """
    assert wall is not None and federation.devices is not None
    devices = devices_in_round(federation.devices, hyper, wall.elapsed.high, t)
    (state, info), spent = run_metered(go, vector, ClientState(devices=devices), hyper)
    if "clock.deadline_s" not in hyper:
        lasts = jnp.max(spent.each, initial=0.0)
        late = jnp.zeros_like(spent.who)
    else:
        # Of the round above only the counts are used: XLA leaves the training out
        deadline = hyper["clock.deadline_s"]
        late = spent.who & (spent.each > deadline)
        state, info = go(ClientState(devices=devices._replace(late=late)))
        lasts = jnp.minimum(jnp.max(spent.each, initial=0.0), deadline)
    lasts = jnp.where(
        spent.who.any(), lasts, seconds_to_next(federation, devices, wall.elapsed.high, t)
    )
    each = jnp.minimum(spent.each, lasts)
    waited = add_by_label(
        wall.waited, jnp.where(spent.who & ~late, models(state)[1], -1), lasts - each
    )
    elapsed = add(wall.elapsed, lasts + spent.before)
    busy = add(wall.busy, jnp.sum(each))
    so_far = None if wall.late is None else wall.late + jnp.sum(late, dtype=jnp.int32)
    return (state, info), Wall(elapsed, busy, so_far, waited)


def devices_in_round(devices: Devices, hyper: Hyper, now: Array, t: Array) -> DevicesNow:
    """Return the speed and availability of the devices in round t, which begins at `now` f32[]
    seconds."""
    speed = jnp.exp(hyper["clock.spread"] * devices.pace)
    if devices.times is None or devices.available is None or devices.factor is None:
        return DevicesNow(speed)
    at = reached_second(now) if devices.by_seconds else t.astype(jnp.float32)
    row = jnp.searchsorted(devices.times, at, side="right") - 1
    return DevicesNow(speed * devices.factor[row], devices.available[row])


def reached_second(now: Array) -> Array:
    """Return the latest second that has been reached, f32[]. A line of a trace begins when the
    clock, a rounded sum, is close enough: three rounds of 0.03 s are a little less than 0.09 s in
    float32."""
    return now * (1 + CLOCK_ERROR)


def client_seconds(
    steps: Array,
    speed: Array,
    sent: Traffic,
    number: Array,
    vector: tuple[float, float],
    hyper: Hyper,
) -> Array:
    """Compute the seconds of clients that do these steps; `number` clients share this traffic."""
    own = Traffic(*(each.astype(jnp.float32) / jnp.maximum(number, 1) for each in sent))
    down, up = own.bytes(vector)
    sending = 8e-6 * (down / hyper["clock.down_mbps"] + up / hyper["clock.up_mbps"])
    return steps * (hyper["clock.step_ms"] / 1000) / speed + sending


def run_metered(
    go: RunRound, vector: tuple[float, float], kept: ClientState, hyper: Hyper
) -> tuple[tuple[Tree, Info], RoundTime]:
    """Run a round and measure its time, if no client is late."""
    assert kept.devices is not None
    state, info = go(kept)
    return (state, info), _sum_time(info, vector, kept.devices.speed, hyper)


def _sum_time(info: Info, vector: tuple[float, float], speed: Array, hyper: Hyper) -> RoundTime:
    if info.steps is None:
        raise SpecError(
            "train.clock: the method does not report its clients' steps; make the report of a "
            "round by report(…) or report_trained(…)"
        )
    who = info.steps > 0
    own = info.traffic
    before = jnp.float32(0)
    if info.before is not None:
        sent, senders = info.before
        own = Traffic(*map(jnp.subtract, own, sent))
        before = client_seconds(jnp.float32(0), jnp.float32(1), sent, senders, vector, hyper)
    each = client_seconds(info.steps, speed, own, jnp.sum(who), vector, hyper)
    return RoundTime(jnp.where(who, each, 0.0), who, before, own)


def seconds_to_next(federation: Federation, present: DevicesNow, now: Array, t: Array) -> Array:
    """Return how long a round without participants lasts, f32[]: until a trace's next row in
    seconds if nobody is there, else 0."""
    devices = federation.devices
    here = cohort.present(federation, t)
    if devices is None or devices.times is None or present.there is None or not devices.by_seconds:
        return jnp.float32(0)
    ahead = jnp.min(jnp.where(devices.times > reached_second(now), devices.times, jnp.inf))
    away = jnp.any(here) & ~jnp.any(here & present.there)
    return jnp.where(away & jnp.isfinite(ahead), ahead - now, 0.0)


def add_by_label(total: Array, labels: Array, each: Array) -> Array:
    """Add the values of clients with these labels i32[n] to the sums of clusters [K]; −1: to none.
    K may be 0."""
    if not total.shape[0]:
        return total
    return total.at[jnp.where(labels >= 0, labels, total.shape[0])].add(each, mode="drop")


def add(total: Sum, more: Array) -> Sum:
    """Add one number to the sum; the rounding error is kept in its lower part (Kahan)."""
    # A float32 of a day in seconds has steps of 8 ms, in which short rounds would be lost
    more = more + total.low
    high = total.high + more
    return Sum(high, more - (high - total.high))
