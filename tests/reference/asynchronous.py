"""Buffered asynchronous aggregation inside clusters, from the description in the documentation
alone: a queue of events, one client at a time, in float64 and absolute time. A client that leaves
the queue is free again."""

import heapq
from typing import NamedTuple

import numpy as np

from cfljax import keys
from tests.reference import plain


class Step(NamedTuple):
    """What stands after a step of the server."""

    models: np.ndarray
    labels: np.ndarray
    now: float
    busy: float
    staleness: float
    applied: np.ndarray
    begun: int
    arrived: int


def discount(tau, exponent):
    """s(τ) of Xie et al. 2019."""
    return (1.0 + tau) ** -exponent


def drawn(seed, t, uid, away, number):
    """The clients that take free places in step t, the luckiest first."""
    luck = np.asarray(keys.scores(plain.round_key(seed, t), "cohort", uid)) >> 1
    return [c for c in np.argsort(-luck.astype(np.int64), kind="stable") if c not in away][:number]


def run(
    net, clients, models, steps, under_way, buffer, seconds, lr, choose, weight, s, seed=0, train=plain.fit,
    lr_decay=1.0, **local,
):  # fmt: skip
    """The state after each step. `seconds(c)`: from a client's beginning to its arrival.
    `choose(models, c)`: its cluster. `weight(c)`: its weight in a mean. `s(tau)`: the factor of an
    update that is tau steps old. A client trains with the rate of the step in which it begins."""
    models, uid = [np.array(m, np.float64) for m in models], clients.uid
    queue, trips, out = [], [], []
    now, stale, applied, labels = 0.0, [], np.zeros(len(models), int), np.full(len(uid), -1)
    for t in range(steps):
        for c in drawn(seed, t, uid, {event[2] for event in queue}, under_way - len(queue)):
            k = choose(models, c)
            w, _ = train(
                net,
                models[k],
                clients.train[c],
                plain.local_key(plain.round_key(seed, t), uid[c]),
                lr * lr_decay**t,
                **local,
            )
            labels[c] = k
            trips.append((now, now + seconds(c)))
            heapq.heappush(queue, (now + seconds(c), int(uid[c]), c, k, t, w - models[k]))
        arrived = [heapq.heappop(queue) for _ in range(min(buffer, len(queue)))]
        now = max(now, *(event[0] for event in arrived))
        for k in range(len(models)):
            mine = [event for event in arrived if event[3] == k]
            plainly = [weight(c) for _, _, c, _, _, _ in mine]
            less = [weight(c) * s(t - begun) for _, _, c, _, begun, _ in mine]
            total = sum(plainly)
            models[k] = (
                models[k] + sum(f * event[5] / total for f, event in zip(less, mine, strict=True))
                if mine
                else models[k]
            )
            applied[k] += len(mine)
        stale += [t - event[4] for event in arrived]
        busy = sum(min(end, now) - begin for begin, end in trips)
        out.append(
            Step(
                np.array(models),
                labels.copy(),
                now,
                busy,
                np.mean(stale),
                applied.copy(),
                len(trips),
                len(stale),
            )
        )
    return out
