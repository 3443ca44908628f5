"""Pre-training: clients that have no cluster yet train from one common model. Methods that cluster
once compare these updates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from cfljax import keys
from cfljax.devices.placement import from_host
from cfljax.kernels.mix import PLAIN, Rule, add_noise
from cfljax.kernels.robust import robust_sum
from cfljax.lazy import jax, jnp
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.types import Array, ClientState, Federation, Hyper, Jobs, Updates

# The most clients that pre-train in one call of the compiled program
CHUNK = 64


def solver_before(solver: Solver, epochs: int | None, steps: int | None = None) -> Solver:
    """Return a copy of the solver for pre-training: it does this number of epochs (or of steps) on
    batches of the run's size."""
    return solver.with_work(Work(epochs, steps, solver.work.batch))


def pretrain(
    solver: Solver,
    key: Array,
    federation: Federation,
    hyper: Hyper,
    start: Array,
    ids: Array,
    mask: Array,
    client_params: Array | None,
) -> Updates:
    """Return the updates of the clients `ids` i32[n], trained from `start` f32[d]; zero where
    `mask` bool[n] is False. `solver` comes from `solver_before`. `key` is the run's or the round's;
    draws are independent of the round's training. `client_params` as in `ClientState`;
    residuals and optimisers are of another start, so they do not count."""
    n = ids.shape[0]
    first = jnp.zeros(n, jnp.int32)
    kept = ClientState(client_params=client_params)
    arrived = solver.download(key, start[None])
    jobs = Jobs(ids, mask, jnp.ones(n), arrived, first, kept=kept)
    return solver.fit(keys.fold(key, "pretrain"), federation, jobs, hyper)


def in_chunks(find: Callable[[Array, Array], Array], who: Array) -> Array:
    """i32[C]: `find(ids i32[n], mask bool[n]) -> i32[n]` of the clients where `who` bool[C], at
    most CHUNK at a time; else −1."""
    clients = who.shape[0]
    size = min(CHUNK, clients)
    ids = jnp.arange(-(-clients // size) * size)
    mask = jnp.pad(who, (0, ids.size - clients))
    parts = (jnp.minimum(ids, clients - 1).reshape(-1, size), mask.reshape(-1, size))
    found = jax.lax.map(lambda part: find(*part), parts)
    return jnp.where(who, found.reshape(-1)[:clients], -1)


# Some pre-trained clients: (ids i32[m], updates f32[m, d])
Part = tuple[np.ndarray, np.ndarray]
Pretrainer = Callable[
    [Array, Federation, Hyper, np.ndarray, np.ndarray, "Array | None"], Iterator[Part]
]
"""HOST. (key, federation, hyper, start f32[d], ids i32[n], client_params) -> the updates of clients
`ids` that train from `start` and their own parameters, in parts of at most CHUNK."""


def pretrainer(solver: Solver) -> Pretrainer:
    """HOST. The function that pre-trains clients with the solver of `solver_before`. It uses one
    compiled program for any number of clients, and it needs the memory of CHUNK updates."""

    def moves(*given: Any) -> Array:
        return pretrain(solver, *given).delta

    program = from_host(moves, solver.plan)

    def train(
        key: Array,
        federation: Federation,
        hyper: Hyper,
        start: np.ndarray,
        ids: np.ndarray,
        client_params: Array | None,
    ) -> Iterator[Part]:
        size = min(CHUNK, federation.clients)
        for at in range(0, len(ids), size):
            part = ids[at : at + size]
            filled = np.resize(part, size)
            mask = np.arange(size) < len(part)
            with jax.default_matmul_precision("highest"):  # as in the rounds
                delta = program(
                    key,
                    federation,
                    hyper,
                    jnp.asarray(start),
                    jnp.asarray(filled),
                    jnp.asarray(mask),
                    client_params,
                )
            yield part, np.asarray(delta)[: len(part)]

    return train


@functools.lru_cache(maxsize=8)
def scorer(solver: Solver) -> Callable[..., Array]:
    """HOST. Return the compiled program (key, federation, models f32[K, d], clients i32[S], mask
    bool[S], client_params) -> the losses f32[K, S] of `Solver.losses`. The key is not used."""

    def losses(key: Array, federation: Federation, models: Array, *given: Array) -> Array:
        return solver.losses(federation, solver.download(key, models), *given)

    return from_host(losses, solver.plan)


def means(
    parts: Iterable[Part], labels: np.ndarray, clusters: int, rule: Rule = PLAIN
) -> np.ndarray:
    """HOST. Return f32[K, d]: the mean of the finite updates of each cluster, or the statistic of
    the rule instead; zero for a cluster without updates. `labels` i32[n]: the cluster of each
    client in the order of the parts; −1: none. For means only one part is in memory at a time, for
    a statistic all are."""
    if rule.statistic:
        rows = np.concatenate([delta for _, delta in parts])
        finite = np.isfinite(rows).all(axis=1)
        member = (labels[None, :] == np.arange(clusters)[:, None]) & finite
        shares = (member / np.maximum(member.sum(axis=1, keepdims=True), 1)).astype(np.float32)
        return np.asarray(
            robust_sum(
                jnp.asarray(shares),
                jnp.asarray(rows),
                jnp.asarray(finite),
                rule.statistic,
                rule.number,
            )
        )
    sums, at = None, 0
    count = np.zeros(clusters)
    for _, delta in parts:
        own = np.where(np.isfinite(delta).all(axis=1), labels[at : at + len(delta)], -1)
        sums = np.zeros((clusters, delta.shape[1])) if sums is None else sums
        at = at + len(delta)
        for k in np.unique(own[own >= 0]):
            sums[k] += delta[own == k].sum(axis=0, dtype=np.float64)
            count[k] += np.sum(own == k)
    assert sums is not None
    each = (sums / np.maximum(count, 1)[:, None]).astype(np.float32)
    shares = np.where(count > 0, 1 / np.maximum(count, 1), 0.0).astype(np.float32)[:, None]
    return np.asarray(add_noise(rule, jnp.asarray(shares), jnp.asarray(each)))
