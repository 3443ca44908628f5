"""The participants of a round. They are drawn by identity, so that padding and the order of clients
change no draw."""

from __future__ import annotations

import math

from cfljax import keys
from cfljax.federation.gather import insertion_points
from cfljax.lazy import jax, jnp
from cfljax.types import Array, ClientState, Cohort, Federation, Hyper

NO_STATE = ClientState()


def draw(
    key: Array,
    federation: Federation,
    participants: int,
    round: Array,
    hyper: Hyper,
    kept: ClientState = NO_STATE,
) -> Cohort:
    """Draw participants from the clients that have arrived and hold training data, uniformly
    without replacement.

    Args:
      key: The round's key.
      federation: The clients' data.
      participants: How many slots there are. If there are as many as clients, each client has its
        own. The number `participants` of `hyper`, if there is one, says how many are drawn.
      round: i32[] the round.
      hyper: The numbers of the run. Participants drop out with probability `dropout`, or do only
        the part `straggler_work` of their local steps with probability `stragglers`.
      kept: What belongs to clients. One that a trace marks as unavailable is not drawn, nor is one
        whose update is in flight: it keeps its slot, masked, and others are drawn for the free
        slots, in order. One that would miss the deadline is drawn and left out.
    """
    eligible = present(federation, round)
    flight = kept.flight
    if kept.devices is not None and kept.devices.there is not None:
        eligible = eligible & kept.devices.there
    if flight is not None:
        away = jnp.where(flight.busy, flight.ids, federation.clients)
        eligible = eligible & ~jnp.zeros(federation.clients, bool).at[away].set(True, mode="drop")
    if "participants" in hyper:
        scores = keys.scores(key, "cohort", federation.uid) >> 1
        scores = jnp.where(eligible, scores.astype(jnp.int32), -1)
        eligible = eligible & find_highest(scores, hyper["participants"])
    if participants >= federation.clients:
        ids = jnp.arange(federation.clients, dtype=jnp.int32)
    else:
        # Without the sign bit, −1 is below all scores
        score = keys.scores(key, "cohort", federation.uid) >> 1
        ids = select_highest(jnp.where(eligible, score.astype(jnp.int32), -1), participants)
        if flight is not None:
            # The j-th free slot gets the j-th client drawn
            rank = jnp.maximum(jnp.cumsum(~flight.busy) - 1, 0)
            ids = jnp.where(flight.busy, flight.ids, ids[rank])
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
    """Draw clients of each cluster without replacement, by the scores of `draw`: one cluster draws
    as FedAvg.

    Args:
      key: The round's key.
      federation: The clients' data.
      labels: i32[C] the clients' clusters; −1: none.
      clusters: K.
      most: How many clients of a cluster are drawn, or all of a smaller one.
      cohort: What the run has drawn for the round.
      hyper: The numbers of the run.
    """
    can_train = present(federation, cohort.round) & (labels >= 0)
    scores = keys.scores(key, "cohort", federation.uid) >> 1
    index = jnp.arange(federation.clients, dtype=jnp.int32)
    # By cluster, the highest scores first (~ turns the order of unsigned numbers around)
    cluster, _, client = jax.lax.sort(
        (jnp.where(can_train, labels, clusters), ~scores, index), num_keys=2, is_stable=True
    )
    rank = index - jnp.searchsorted(cluster, cluster, side="left")
    chosen = (rank < most) & (cluster < clusters)
    front = jnp.argsort(~chosen, stable=True)[: min(federation.clients, clusters * most)]
    return gather(key, federation, client[front], chosen[front], cohort.round, hyper, cohort.kept)


def draw_highest(
    key: Array, federation: Federation, scores: Array, cohort: Cohort, hyper: Hyper
) -> Cohort:
    """Draw the clients with the highest scores, of those that have arrived and hold training data:
    as many as the run has drawn, of equal ones random ones. They drop out and are slow as the run's
    participants are.

    Args:
        key: The round's key.
        federation: The clients' data.
        scores: f32[C] the score of each client; NaN is below all others.
        cohort: What the run has drawn for the round.
        hyper: The numbers of the run.

    Example:
        ```python
        luck = uniform_numbers(key, "by loss", federation.uid)
        chosen = draw_highest(key, federation, jnp.log(luck) / losses, cohort, hyper)
        ```
    """
    participants = cohort.ids.shape[0]
    if participants >= federation.clients and "participants" not in hyper:
        return cohort
    can_train = present(federation, cohort.round)
    devices = cohort.kept.devices
    if devices is not None and devices.there is not None:
        can_train = can_train & devices.there
    scores = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    # Those that cannot train come after all others, also after a score of −∞
    luck = keys.scores(key, "cohort", federation.uid)
    ids = jnp.lexsort((luck, -scores, ~can_train))[:participants].astype(jnp.int32)
    drawn = can_train[ids]
    if "participants" in hyper:
        drawn = drawn & (jnp.arange(participants) < hyper["participants"])
    return gather(key, federation, ids, drawn, cohort.round, hyper, cohort.kept)


def select_highest(scores: Array, number: int) -> Array:
    """Return i32[number]: the positions of the highest scores i32[C], the highest first, the first
    of equal ones first. Scores are uniform in 0 … 2³¹ − 1, and −1 for clients that cannot be drawn.
    As they are uniform, a threshold leaves few of a million to sort."""
    clients = scores.shape[0]
    room = number + 16 * math.isqrt(number) + 64
    if clients <= 4 * room:
        return jax.lax.top_k(scores, number)[1]
    # The share of scores above the threshold: as many as are wanted, and eight standard deviations
    # of their number more, of which `room` leaves as many again
    wanted = (number + 8 * math.isqrt(number) + 32) / jnp.maximum(jnp.sum(scores >= 0), 1)
    above = scores >= jnp.maximum((1 - wanted) * 2.0**31, 0).astype(jnp.int32)
    rank = jnp.cumsum(above, dtype=jnp.int32)

    def sort_some() -> Array:
        ids = insertion_points(rank, jnp.arange(1, room + 1)).astype(jnp.int32)
        scores_above = jnp.where(ids < clients, scores[jnp.minimum(ids, clients - 1)], -1)
        return ids[jax.lax.top_k(scores_above, number)[1]]

    def sort_all() -> Array:
        return jax.lax.top_k(scores, number)[1]

    return jax.lax.cond((rank[-1] >= number) & (rank[-1] <= room), sort_some, sort_all)


def find_highest(scores: Array, number: Array) -> Array:
    """Return bool[C]: whether each of the scores i32[C] is one of so many highest ones f32[]; the
    first of equal ones is."""
    order = jnp.argsort(-scores, stable=True)
    rank = jnp.arange(scores.shape[0])
    return jnp.zeros(scores.shape[0], bool).at[order].set(rank < number)


def present(federation: Federation, round: Array) -> Array:
    """Return bool[C]: real clients that have arrived and hold training data."""
    return federation.trains & (federation.arrive <= round)


def gather(
    key: Array,
    federation: Federation,
    ids: Array,
    mask: Array,
    round: Array,
    hyper: Hyper,
    kept: ClientState = NO_STATE,
) -> Cohort:
    """Build the cohort of the clients ids i32[S] where mask bool[S], after dropout, with
    stragglers. `key` is the round's, the other arguments as in `draw`."""
    work = jnp.ones(ids.shape)
    uid = federation.uid[ids]
    if (devices := kept.devices) is not None:
        mask = mask if devices.there is None else mask & devices.there[ids]
        mask = mask if devices.late is None else mask & ~devices.late[ids]
    if "dropout" in hyper:
        mask = mask & (uniform_numbers(key, "dropout", uid) >= hyper["dropout"])
    if "stragglers" in hyper:
        work = jnp.where(
            uniform_numbers(key, "straggler", uid) < hyper["stragglers"],
            hyper["straggler_work"],
            work,
        )
    return Cohort(ids, mask, work, jnp.asarray(round, jnp.int32), kept)


def uniform_numbers(key: Array, purpose: str, uid: Array) -> Array:
    """Return f32[n] in [0, 1): a random number for each client by its identity, so that neither
    padding nor the order of clients changes it.

    Args:
        key: The round's key.
        purpose: What the numbers are for. Another purpose has other numbers.
        uid: u32[n] the identities, such as `federation.uid`.
    """
    return (keys.scores(key, purpose, uid) >> 8).astype(jnp.float32) / (1 << 24)
