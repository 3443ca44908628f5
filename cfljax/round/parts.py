"""Methods whose models are shared in part: some parameters by everybody, some by a cluster, some by
nobody (`train.parts`). Some do not train (`train.freeze`).

The method itself trains and averages K whole models. After that,
- what everybody shares becomes, after each round, the mean of all participants whose update
  arrived, with the weights that the method gives to the members of a cluster (its option `average`,
  "nova" excepted; by samples where it has none), in all K models;
- what stays with a client is put into the model that it starts from (`ClientState.client_params`),
  and its update there is split off before anything is sent (`Updates.home`). A client is scored by
  its cluster's model with its own part; so is its choice of a cluster;
- what does not train is in each of the K models as it began, and is never sent: everybody can draw
  it from the run's seed.

Readings:
- The mean of all participants. It is computed from the K averaged models, each with the summed
  weight of its members. With `train.robust` it is therefore the weighted mean of the clusters'
  statistics; noise of `train.privacy` is the clusters'.
- Starts. The K models begin with the first one's shared parts; clients begin with the own part of
  the first model.

A newcomer, and a client that has not been drawn yet, has the own part that all clients begin with,
in the model that the method would give it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cfljax.kernels.mix import usable
from cfljax.lazy import jax, jnp
from cfljax.local.flight import select_arriving
from cfljax.local.parts import ModelParts
from cfljax.local.solver import Solver
from cfljax.round.clustered import Clustered
from cfljax.round.clusters import ClusteredMethod
from cfljax.round.state import RoundResult, State
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Tree


class PartlyShared(ClusteredMethod):
    """The functions of a clustered method whose models are shared in part, as its solver's `parts`
    say. The models in its state hold what stays with clients as these began with it."""

    def __init__(self, name: str, config: Clustered, model: Model, solver: Solver):
        super().__init__(name, config, model, solver)
        assert solver.parts is not None
        self.parts = solver.parts
        self.home = bool(solver.parts.home.size)

    def method(self) -> Method[State]:
        """Return the functions that the engine calls, and how much of a model travels."""
        whole, parts = super().method(), self.parts
        # What everybody shares comes once with all models that are sent down
        down = (
            len(parts.columns("cluster")) + len(parts.shared) / self.config.shared_copies_downloaded
        )
        made = whole._replace(
            travels=(down, len(parts.away)), after_server_step=self.after_server_step
        )
        return made._replace(score=self.score, chooses=False) if self.home else made

    def init(
        self, key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]
    ) -> State:
        """Begin with what all clients have of the first model."""
        state = super().init(key, federation, hyper, setup)
        of_all = self.parts.columns("all", "client")
        state = state._replace(
            **self._each(lambda rows: rows.at[:, of_all].set(rows[0, of_all]), state)
        )
        if self.home:
            state = state._replace(
                client_params=jnp.tile(state.models[0, self.parts.home], (federation.clients, 1))
            )
        return self._score_clients(state, federation, hyper)

    def round(
        self, key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        """Train with what stays with the participants."""
        cohort = cohort._replace(kept=cohort.kept._replace(client_params=state.client_params))
        state, info = super().round(key, state, federation, cohort, hyper)
        return self._score_clients(state, federation, hyper), info

    def share(
        self, before: State, after: State, federation: Federation, cohort: Cohort, done: RoundResult
    ) -> State:
        """Share the parts of models that everybody shares, and move what stays with the
        participants."""
        came = select_arriving(cohort, after.labels[cohort.ids])
        arrived = came.mask & done.finite
        uniform = self.config.average == "uniform"
        each = jnp.float32(1) if uniform else federation.train.count[came.ids].astype(jnp.float32)
        each = jnp.where(arrived & (came.which >= 0), each, 0.0)
        mass = jax.ops.segment_sum(each, jnp.maximum(came.which, 0), after.clusters)
        after = after._replace(
            **self._each(functools.partial(_share_columns, self.parts, mass), before, after)
        )
        if after.client_params is None or done.notes is None:
            return after
        there = jnp.where(arrived & usable(done.notes), cohort.ids, federation.clients)
        return after._replace(
            client_params=after.client_params.at[there].add(done.notes, mode="drop")
        )

    def after_server_step(
        self, before: State, after: State, federation: Federation, hyper: Hyper
    ) -> State:
        """Return what depends on the models, after a server's step."""
        return self._score_clients(
            super().after_server_step(before, after, federation, hyper), federation, hyper
        )

    def regroup(
        self, key: Array, state: State, federation: Federation, hyper: Hyper, round: int
    ) -> State:
        """HOST. Make clusters again, and copy shared and frozen parameters into their models."""
        new = super().regroup(key, state, federation, hyper, round)
        kept = self.parts.columns("all", "client", "frozen")
        rows = self._each(lambda old, rows: rows.at[:, kept].set(old[:, kept]), state, new)
        return new._replace(client_params=state.client_params, scored_by=state.scored_by, **rows)

    def score(self, state: State, federation: Federation, hyper: Hyper) -> Array:
        """Return i32[C]: the model of each client, its own one if a part of it stays with the
        client."""
        if self.home:
            return jnp.arange(federation.clients, dtype=jnp.int32)
        return super().score(state, federation, hyper)

    def follow(self, state: State, federation: Federation) -> State:
        """Return the state whose clusters are the true groups of this round."""
        state = super().follow(state, federation)
        return state._replace(scored_by=state.labels.astype(jnp.int32)) if self.home else state

    def models(self, state: State) -> tuple[Array, Array]:
        """Return the clusters' models, or the model of each client."""
        clusters, labels = super().models(state)
        if state.client_params is None or state.scored_by is None:
            return clusters, labels
        each = (
            jnp.asarray(clusters)[jnp.maximum(state.scored_by, 0)]
            .at[:, self.parts.home]
            .set(state.client_params)
        )
        mine = jnp.arange(each.shape[0], dtype=jnp.int32)
        return each, jnp.where(labels >= 0, mine, -1)

    def extras(self, state: State) -> dict[str, Array]:
        """Return what is kept with the results."""
        return super().extras(state) | ({"cluster_of_client": state.labels} if self.home else {})

    def _each(self, change: Callable[..., Array], *states: State) -> dict[str, Any]:
        """Return `change(f32[K, d] of each state)` of all averaged arrays, by name."""
        return {
            name: change(*(jnp.asarray(getattr(state, name)) for state in states))
            for name in self.config.averaged
        }

    def _score_clients(self, state: State, federation: Federation, hyper: Hyper) -> State:
        """Return the state with the cluster whose model each client has, or would get
        (`State.scored_by`), if a part of models stays with clients. `models` needs it, and has no
        data to find it by."""
        if not self.home:
            return state
        found = (
            state.labels
            if self.config.has_fixed_labels
            else super().score(state, federation, hyper)
        )
        return state._replace(scored_by=found.astype(jnp.int32))


def _share_columns(parts: ModelParts, mass: Array, old: Array, new: Array) -> Array:
    """Return the method's new arrays f32[K, d], in which the parts that everybody shares are the
    mean by `mass` f32[K], and those that stay with clients or do not train are as before.

    Args:
      parts: Which columns everybody shares, and which stay as they are.
      mass: f32[K] the weight of each cluster's participants whose updates have arrived.
      old: f32[K, d] the arrays before the round.
      new: f32[K, d] those that the method has made.
    """
    shared = parts.shared
    if shared.size:
        # A model without participants may be NaN, which 0 times it would be, too
        rows = jnp.where(mass[:, None] > 0, new[:, shared], 0.0)
        mean = (mass / jnp.maximum(jnp.sum(mass), 1e-30)) @ rows
        new = new.at[:, shared].set(jnp.where(jnp.sum(mass) > 0, mean, old[0, shared]))
    return new.at[:, parts.kept].set(old[:, parts.kept]) if parts.kept.size else new
