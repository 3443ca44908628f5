"""What methods share: first models, a round of training inside clusters, and its bookkeeping."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.kernels.mix import Mixed, usable
from cfljax.local.rounds import mean_loss, mean_over
from cfljax.types import Cohort, Federation, Info, Model, Traffic, Updates


class Clusters(NamedTuple):
    """The state of a method that keeps models and who belongs to which."""

    models: jax.Array
    """f32[K, d]."""
    labels: jax.Array
    """i32[C]; −1: none yet."""


def first_model(key: jax.Array, model: Model) -> jax.Array:
    """f32[d]: `w_0`, the same for every method that starts from one model."""
    return model.init(keys.fold(key, "model", 0))


def first_models(key: jax.Array, model: Model, clusters: int) -> jax.Array:
    """f32[K, d] independent initialisations; the first is `w_0`."""
    return jax.vmap(model.init)(keys.fold_each(key, "model", jnp.arange(clusters)))


def traffic(cohort: Cohort, vectors_down: Any = 1, vectors_up: Any = 1, floats_down: Any = 0, floats_up: Any = 0) -> Traffic:
    """Communication of a round from what each participant receives and sends."""
    n = jnp.sum(cohort.mask, dtype=jnp.int32)
    return Traffic(*(jnp.asarray(each, jnp.int32) * n for each in (vectors_down, vectors_up, floats_down, floats_up)))


def report(
    federation: Federation,
    cohort: Cohort,
    updates: Updates,
    start: jax.Array,
    end: jax.Array,
    mixed: Mixed,
    traffic: Traffic,
    **diag: jax.Array,
) -> Info:
    """The Info of a round; start, end f32[S, d] are each participant's model before the round and after aggregation."""
    ok = cohort.mask & usable(updates.delta)
    drift = mean_over(cohort, ok, jnp.linalg.norm(updates.delta, axis=1))
    discrepancy = mean_over(cohort, ok, jnp.linalg.norm(start + updates.delta - end, axis=1))
    loss = mean_loss(federation, cohort, updates.loss)
    return Info(traffic, loss, discrepancy, drift, mixed.nonfinite, jnp.any(cohort.mask) & ~jnp.any(ok), diag)


def keep_own(cohort: Cohort, delta: jax.Array, start: jax.Array) -> Mixed:
    """Aggregation of personal models: each participant's own finite update, f32[S, d]; nothing is shared."""
    finite = usable(delta)
    new = jnp.where((cohort.mask & finite)[:, None], start + delta, start)
    return Mixed(new, jnp.sum(cohort.mask & ~finite, dtype=jnp.int32), cohort.mask & ~finite)
