"""What methods share: the state of clusters, first models, communication, and personal models."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.kernels.mix import Mixed, usable
from cfljax.types import Array, Cohort, Model, Traffic


class Clusters(NamedTuple):
    """The state of a method that keeps models and who belongs to which."""

    models: Array
    """f32[K, d]."""
    labels: Array
    """i32[C]; −1: none yet."""


def first_model(key: Array, model: Model) -> Array:
    """f32[d]: `w_0`, the same for every method that starts from one model."""
    return model.init(keys.fold(key, "model", 0))


def first_models(key: Array, model: Model, clusters: int) -> Array:
    """f32[K, d] independent initialisations; the first is `w_0`."""
    return jax.vmap(model.init)(keys.fold_each(key, "model", jnp.arange(clusters)))


Count = int | Array
"""A number, or i32[]."""


def traffic(
    cohort: Cohort, vectors_down: Count = 1, vectors_up: Count = 1, floats_down: Count = 0, floats_up: Count = 0
) -> Traffic:
    """Communication of a round from what each participant receives and sends."""
    n = jnp.sum(cohort.mask, dtype=jnp.int32)
    return Traffic(*(jnp.asarray(each, jnp.int32) * n for each in (vectors_down, vectors_up, floats_down, floats_up)))


def keep_own(cohort: Cohort, delta: Array, start: Array) -> Mixed:
    """Aggregation of personal models: each participant's own finite update, f32[S, d]; nothing is shared."""
    finite = usable(delta)
    new = jnp.where((cohort.mask & finite)[:, None], start + delta, start)
    return Mixed(new, jnp.sum(cohort.mask & ~finite, dtype=jnp.int32), cohort.mask & ~finite)
