"""Methods whose models are shared in part: some parameters by everybody, some by a cluster, some by nobody (`train.parts`). Some do
not train (`train.freeze`).

The method itself is untouched: it trains and averages K whole models. Around it,
- what everybody shares becomes, after each round, the mean of all participants whose update arrived, with the weights that the
  method gives to the members of a cluster (its option `average`, "nova" excepted; by samples where it has none), in all K models;
- what stays with a client is put into the model that it starts from (`Federation.own`), and its update there is split off before
  anything is sent (`Updates.home`). A client is scored by its cluster's model with its own part; so is its choice of a cluster;
- what does not train is in each of the K models as it began, and is never sent: everybody can draw it from the run's seed.

Readings:
- The mean of all participants. It is computed from the K averaged models, each with the summed weight of its members. With
  `train.robust` it is therefore the weighted mean of the clusters' statistics; noise of `train.privacy` is the clusters'.
- Starts. The K models begin with the first one's shared parts; clients begin with the own part of the first model.

A newcomer, and a client that has not been drawn yet, has the own part that all clients begin with, in the model that the method
would give it.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.kernels.mix import usable
from cfljax.lazy import jax, jnp
from cfljax.local.flight import select_arriving
from cfljax.local.parts import ModelParts, divide_model
from cfljax.local.solver import Solver
from cfljax.round.config import MakeMethod, MethodConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Tree


class Shared(NamedTuple):
    """The state of a method whose models are shared in part."""

    inner: Tree  # The method's own state. Its models hold, where parts stay with clients, what these began with.
    own: Array | None  # f32[C, n]: the part that stays with each client; None: there is none
    guess: Array | None  # i32[C]: the cluster whose model each client has, or would get; None: `own` is None


def make_in_parts(
    make: MakeMethod, config: MethodConfig, model: Model, solver: Solver, table: tuple[tuple[str, str], ...]
) -> Method:
    """Return the method of `make` with models that are shared in part, as `table` says (see `divide_model`)."""
    parts = divide_model(model, table, bool(solver.work.head or config.head_epochs))
    made = make(config, model, dataclasses.replace(solver, parts=parts))
    return in_parts(made, config, parts) if parts.kept.size or parts.shared.size else made


def in_parts(method: Method, config: MethodConfig, parts: ModelParts) -> Method:
    """Return the method around which parts are shared. It must have been made with a solver that has the same `parts`."""
    home = bool(parts.home.size)
    weights, fields = getattr(config, "average", "samples"), config.averaged

    def guessed(state: Shared, federation: Federation, hyper: Hyper) -> Shared:
        if not home:
            return state
        inner, seen = state.inner, _seen(federation, state)
        found = method.models(inner)[1] if method.score is None else method.score(inner, seen, hyper)
        return state._replace(guess=found.astype(jnp.int32))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> Shared:
        inner = method.init(key, federation, hyper, setup)
        of_all = parts.columns("all", "client")
        inner = inner._replace(**{name: _alike(each := getattr(inner, name), each, of_all) for name in fields})
        own = jnp.tile(method.models(inner)[0][0, parts.home], (federation.clients, 1)) if home else None
        return guessed(Shared(inner, own, None), federation, hyper)

    def round(key: Array, state: Shared, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Shared, Info]:
        inner, info = method.round(key, state.inner, _seen(federation, state), cohort, hyper)
        assert info.finite is not None
        cohort = cohort if info.cohort is None else info.cohort
        came = select_arriving(cohort, method.models(inner)[1][cohort.ids])
        arrived = came.mask & info.finite
        each = jnp.float32(1) if weights == "uniform" else federation.train.count[came.ids].astype(jnp.float32)
        each = jnp.where(arrived & (came.which >= 0), each, 0.0)
        mass = jax.ops.segment_sum(each, jnp.maximum(came.which, 0), method.models(inner)[0].shape[0])
        new = {name: _mixed(parts, mass, getattr(state.inner, name), getattr(inner, name)) for name in fields}
        state = state._replace(inner=inner._replace(**new))
        if state.own is not None and info.home is not None:
            there = jnp.where(arrived & usable(info.home), cohort.ids, federation.clients)
            state = state._replace(own=state.own.at[there].add(info.home, mode="drop"))
        return guessed(state, federation, hyper), info._replace(home=None, finite=None, cohort=None)

    def settle(before: Shared, after: Shared, federation: Federation, hyper: Hyper) -> Shared:
        if method.settle is not None:
            after = after._replace(inner=method.settle(before.inner, after.inner, federation, hyper))
        return guessed(after, federation, hyper)

    def regroup(key: Array, state: Shared, federation: Federation, hyper: Hyper, round: int) -> Shared:
        assert method.regroup is not None
        inner = method.regroup(key, state.inner, _seen(federation, state), hyper, round)
        kept = parts.columns("all", "client", "frozen")  # of each row, as a new cluster has them, too
        new = {name: jnp.asarray(getattr(inner, name)).at[:, kept].set(getattr(state.inner, name)[:, kept]) for name in fields}
        return state._replace(inner=inner._replace(**new))

    def score(state: Shared, federation: Federation, hyper: Hyper) -> Array:
        if home:
            return jnp.arange(federation.clients, dtype=jnp.int32)
        assert method.score is not None
        return method.score(state.inner, federation, hyper)

    def follow(state: Shared, federation: Federation) -> Shared:
        assert method.follow is not None
        inner = method.follow(state.inner, federation)
        return state._replace(inner=inner, guess=method.models(inner)[1].astype(jnp.int32) if home else state.guess)

    def extras(state: Shared) -> dict[str, Array]:
        kept = {} if method.extras is None else method.extras(state.inner)
        return kept | ({"cluster_of_client": method.models(state.inner)[1]} if home else {})

    return method._replace(
        init=init,
        round=round,
        models=lambda state: _models(method, parts, state),
        score=score if home or method.score is not None else None,
        extras=extras if home or method.extras is not None else None,
        chooses=method.chooses and not home,
        travels=travels(config, parts),
        follow=None if method.follow is None else follow,
        settle=settle,
        regroup=None if method.regroup is None else regroup,
    )


def travels(config: MethodConfig, parts: ModelParts) -> tuple[float, int]:
    """Return the numbers in a vector on its way (down, up). What everybody shares comes once with all models that are sent down."""
    return len(parts.columns("cluster")) + len(parts.shared) / config.repeats, len(parts.away)


def _seen(federation: Federation, state: Shared) -> Federation:
    """Return the federation as the method sees it: with what stays with the clients."""
    return dataclasses.replace(federation, own=state.own)


def _models(method: Method, parts: ModelParts, state: Shared) -> tuple[Array, Array]:
    """As `Method.models`: the clusters' models, or where parts stay with clients, the model of each client."""
    clusters, labels = method.models(state.inner)
    if state.own is None or state.guess is None:
        return clusters, labels
    each = jnp.asarray(clusters)[jnp.maximum(state.guess, 0)].at[:, parts.home].set(state.own)
    mine = jnp.arange(each.shape[0], dtype=jnp.int32)
    return each, jnp.where(labels >= 0, mine, -1)


def _alike(each: Array, of: Array, columns: np.ndarray) -> Array:
    """f32[K, d]: arrays f32[K, d] in which all rows have, in these columns, what the first of `of` has."""
    return jnp.asarray(each).at[:, columns].set(jnp.asarray(of)[0, columns])


def _mixed(parts: ModelParts, mass: Array, old: Array, new: Array) -> Array:
    """f32[K, d]: the method's new arrays f32[K, d], in which the parts that everybody shares are the mean by `mass` f32[K], and
    those that stay with clients or do not train are as before."""
    shared = parts.shared
    if shared.size:
        mean = (mass / jnp.maximum(jnp.sum(mass), 1e-30)) @ jnp.where(mass[:, None] > 0, new[:, shared], 0.0)
        new = new.at[:, shared].set(jnp.where(jnp.sum(mass) > 0, mean, old[0, shared]))
    return new.at[:, parts.kept].set(old[:, parts.kept]) if parts.kept.size else new
