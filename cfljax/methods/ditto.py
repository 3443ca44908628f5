"""Ditto (Li et al. 2021): FedAvg, plus a personal model per client with a proximal pull lam/2 · ‖v_i − w‖² towards the global
model w that the client was sent. The personal model is scored; the accuracy of w is the diagnostic `accuracy_global`.

Both models are trained in the same round on the same stream of batches, for the run's epochs or steps, so that lam = 0 is local
training and the global model is FedAvg's. A client that holds no training data has no personal model and is scored with w.

Communication per participant and round: one model down, one update up. The personal model stays where it is.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax.kernels.mix import mix_updates, weights_by
from cfljax.local.solver import Solver
from cfljax.methods import fedavg
from cfljax.methods.common import first_model, jobs_from, keep_own, report, sizes, traffic
from cfljax.options import option
from cfljax.registry import Entry
from cfljax.types import Cohort, Federation, Hyper, Info, Method, Model


@dataclasses.dataclass(frozen=True)
class Config(fedavg.Config):
    """Options of Ditto."""

    lam: float = option(0.1, "strength of the pull of personal models to the global one", low=0.0, traced=True)


class State(NamedTuple):
    """All models in one array, so that scoring copies none."""

    models: jax.Array
    """f32[C + 1, d]: the clients' personal models, and the global one."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """Ditto: FedAvg, and personal models pulled towards it."""

    def init(key: jax.Array, federation: Federation, hyper: Hyper, setup: dict[str, jax.Array]) -> State:
        return State(jnp.tile(first_model(key, model), (federation.clients + 1, 1)))

    def round(key: jax.Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        everyone = jnp.zeros_like(cohort.ids)
        mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        w, own = state.models[-1:], state.models[cohort.ids]
        updates = solver.fit(key, federation, jobs_from(cohort, w, everyone), hyper)
        pulled = jobs_from(cohort, own, mine, anchor=w, anchor_of=everyone)
        personal = solver.fit(key, federation, pulled, hyper | {"mu": hyper["lam"]})
        mix = weights_by(everyone, cohort.mask, sizes(federation, cohort), 1, config.average)
        mixed = mix_updates(mix, updates.delta, w)
        kept = keep_own(cohort, personal.delta, own)
        either = cohort.mask & ~(jnp.isfinite(updates.delta) & jnp.isfinite(personal.delta)).all(axis=1)
        mixed = mixed._replace(nonfinite=jnp.sum(either, dtype=jnp.int32))
        models = state.models.at[cohort.ids].set(kept.new).at[-1].set(mixed.new[0])
        apart = jnp.where(cohort.mask, jnp.linalg.norm(kept.new - mixed.new, axis=1), 0.0)
        distance = jnp.sum(apart) / jnp.maximum(jnp.sum(cohort.mask), 1)
        before, after = w[everyone], mixed.new[everyone]
        info = report(federation, cohort, updates, before, after, mixed, traffic(cohort), personal_distance=distance)
        return State(models), info

    def labels(state: State) -> jax.Array:
        return jnp.arange(state.models.shape[0] - 1, dtype=jnp.int32)

    def score(state: State, federation: Federation, hyper: Hyper) -> jax.Array:
        return jnp.where(federation.train.count > 0, labels(state), federation.clients)

    return Method(
        init,
        round,
        models=lambda state: (state.models, labels(state)),
        score=score,
        also=lambda state: {"global": (state.models[-1:], jnp.zeros_like(labels(state)))},
    )


ditto = Entry(Config, make)
