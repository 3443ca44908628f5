"""The participants of a round. They are drawn by identity, so that padding and the order of clients
change no draw."""

from __future__ import annotations

import math

from cfljax import keys
from cfljax.federation.gather import insertion_points
from cfljax.lazy import jax, jnp
from cfljax.types import Array, ClientState, Cohort, Federation, Hyper

NOTHING = ClientState()


def draw(
    key: Array,
    federation: Federation,
    participants: int,
    round: Array,
    hyper: Hyper,
    kept: ClientState = NOTHING,
) -> Cohort:
    """Draw `participants` of the clients that have arrived and hold training data, uniformly
    without replacement. Some of them drop out (`dropout`: probability) or do only a part of their
    local steps (`stragglers`: probability, `straggler_work`). A client that a trace marks as
    unavailable, or whose update is in flight (`kept.flight`), is not drawn: it keeps its slot,
    masked, and others are drawn for the free slots, in order. A client that would miss the deadline
    is drawn and left out (`kept.devices`). If there are as many slots as clients, each client has
    its own."""
    eligible = present(federation, round)
    flight = kept.flight
    if kept.devices is not None and kept.devices.there is not None:
        eligible = eligible & kept.devices.there
    if flight is not None:
        away = jnp.where(flight.busy, flight.ids, federation.clients)
        eligible = eligible & ~jnp.zeros(federation.clients, bool).at[away].set(True, mode="drop")
    if participants >= federation.clients:
        ids = jnp.arange(federation.clients, dtype=jnp.int32)
    else:
        score = keys.scores(key, "cohort", federation.uid) >> 1
        ids = select_highest(jnp.where(eligible, score.astype(jnp.int32), -1), participants)
        if flight is not None:
            ids = jnp.where(
                flight.busy, flight.ids, ids[jnp.maximum(jnp.cumsum(~flight.busy) - 1, 0)]
            )
    return gather(key, federation, ids, eligible[ids], round, hyper, kept)


def draw_inside(
    key: Array,
    federation: Federation,
    labels: Array,
    clusters: int,
    most: int,
    cohort: Cohort,
    hyper: Hyper,
) -> Cohort:
    """Draw up to `most` clients of each cluster without replacement, by everybody's scores: one
    cluster draws as FedAvg. `cohort`: what the run has drawn for the round."""
    able = present(federation, cohort.round) & (labels >= 0)
    luck = keys.scores(key, "cohort", federation.uid) >> 1
    numbers = jnp.arange(federation.clients, dtype=jnp.int32)
    belongs, _, who = jax.lax.sort(
        (jnp.where(able, labels, clusters), ~luck, numbers), num_keys=2, is_stable=True
    )
    rank = numbers - jnp.searchsorted(belongs, belongs, side="left")
    chosen = (rank < most) & (belongs < clusters)
    front = jnp.argsort(~chosen, stable=True)[: min(federation.clients, clusters * most)]
    return gather(key, federation, who[front], chosen[front], cohort.round, hyper, cohort.kept)


def select_highest(scores: Array, number: int) -> Array:
    """i32[number]: the positions of the highest scores i32[C], the highest first, the first of
    equal ones first. Scores are uniform in 0 … 2³¹ − 1, and −1 for clients that cannot be drawn. As
    they are uniform, a threshold leaves few of a million to sort."""
    clients = scores.shape[0]
    room = number + 16 * math.isqrt(number) + 64
    if clients <= 4 * room:
        return jax.lax.top_k(scores, number)[1]
    wanted = (number + 8 * math.isqrt(number) + 32) / jnp.maximum(jnp.sum(scores >= 0), 1)
    above = scores >= jnp.maximum((1 - wanted) * 2.0**31, 0).astype(jnp.int32)
    rank = jnp.cumsum(above, dtype=jnp.int32)

    def few() -> Array:
        ids = insertion_points(rank, jnp.arange(1, room + 1)).astype(jnp.int32)
        left = jnp.where(ids < clients, scores[jnp.minimum(ids, clients - 1)], -1)
        return ids[jax.lax.top_k(left, number)[1]]

    return jax.lax.cond(
        (rank[-1] >= number) & (rank[-1] <= room), few, lambda: jax.lax.top_k(scores, number)[1]
    )


def present(federation: Federation, round: Array) -> Array:
    """bool[C]: real clients that have arrived and hold training data."""
    return federation.trains & (federation.arrive <= round)


def gather(
    key: Array,
    federation: Federation,
    ids: Array,
    mask: Array,
    round: Array,
    hyper: Hyper,
    kept: ClientState = NOTHING,
) -> Cohort:
    """Build the cohort of clients ids i32[S] where mask bool[S], after dropout, with stragglers.
    `key` is the round's."""
    work = jnp.ones(ids.shape)
    uid = federation.uid[ids]
    if (devices := kept.devices) is not None:
        mask = mask if devices.there is None else mask & devices.there[ids]
        mask = mask if devices.late is None else mask & ~devices.late[ids]
    if "dropout" in hyper:
        mask = mask & (_uniform(key, "dropout", uid) >= hyper["dropout"])
    if "stragglers" in hyper:
        work = jnp.where(
            _uniform(key, "straggler", uid) < hyper["stragglers"], hyper["straggler_work"], work
        )
    return Cohort(ids, mask, work, jnp.asarray(round, jnp.int32), kept)


def _uniform(key: Array, name: str, uid: Array) -> Array:
    """f32[S] in [0, 1), one number per identity."""
    return (keys.scores(key, name, uid) >> 8).astype(jnp.float32) / (1 << 24)
