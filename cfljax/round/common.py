"""Parts that many methods use: initial models, what a federation must have, labels, counting
communication, and updating personal models."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from cfljax import keys
from cfljax.devices.compiled import shared_function
from cfljax.devices.split import split_jit
from cfljax.errors import SpecError
from cfljax.kernels.mix import Aggregate, usable
from cfljax.lazy import jax, jnp
from cfljax.types import Array, Cohort, Federation, Model, Traffic

# The most numbers of a model that is drawn by a program of its own: what it is made from is kept
# with the program
SMALL = 1 << 18


def first_model(key: Array, model: Model) -> Array:
    """Return f32[d]: the initial parameters w_0. For one key, all methods that start from a single
    model get the same.

    Args:
        key: The key of the run, which `init` gets.
        model: The network.
    """
    return first_models(key, model, 1)[0]


@functools.lru_cache(maxsize=8)
def first_on_host(model: Model) -> Callable[[Array], Array]:
    """HOST. Return `first_model` as a program, key -> f32[d]."""
    return split_jit(lambda key: first_model(key, model))


def first_models(key: Array, model: Model, clusters: int) -> Array:
    """Return f32[K, d]: K independent initialisations, of which the first is `first_model`; or the
    models of a `model.weights` with K of them.

    Args:
        key: The key of the run, which `init` gets.
        model: The network.
        clusters: K.
    """
    if model.first_models is not None:
        return model.first_models(key, clusters)
    return (_draw_models_apart if model.size <= SMALL else _draw_models)(model, clusters, key)


def _draw_models(model: Model, number: int, key: Array) -> Array:
    return jax.vmap(model.init)(keys.fold_each(key, "model", jnp.arange(number)))


_draw_models_apart = shared_function(static=(0, 1))(_draw_models)


def need_groups(who: str, federation: Federation) -> None:
    """HOST. Raises SpecError where some client's true group is unknown, which `who`, as a message
    calls it, needs."""
    if federation.groups < 1 or np.any(
        np.asarray(federation.group)[np.asarray(federation.real)] < 0
    ):
        raise SpecError(
            f"{who} needs the true group of every client, which this partition does not define"
        )


def need_clients(federation: Federation, clusters: int, name: str) -> None:
    """HOST. Raises SpecError if there are more clusters than clients that train. `name`: the
    method, for the message."""
    train = int(federation.trains.sum())
    if clusters > train:
        raise SpecError(
            f"method.{name}.clusters = {clusters}: only {train} clients train; give at most {train}"
        )


def join(labels: Array, cohort: Cohort, which: Array) -> Array:
    """Return i32[C]: the labels after each participant has joined its cluster. Others keep theirs.

    Args:
        labels: i32[C] the labels before.
        cohort: The participants.
        which: i32[S] the cluster of each.
    """
    return cohort.write(labels, which.astype(labels.dtype))


def traffic(
    cohort: Cohort,
    vectors_down: int | Array = 1,
    vectors_up: int | Array = 1,
    floats_down: int | Array = 0,
    floats_up: int | Array = 0,
) -> Traffic:
    """Return the communication of a round in which each participant receives and sends these
    numbers. A participant that is masked counts nothing.

    Args:
        cohort: The participants.
        vectors_down: Vectors of a model's size that each receives, i32[] or an int.
        vectors_up: Vectors that each sends.
        floats_down: Single numbers that each receives.
        floats_up: Single numbers that each sends.
    """
    n = jnp.sum(cohort.mask, dtype=jnp.int32)
    return Traffic(
        *(
            jnp.asarray(each, jnp.int32) * n
            for each in (vectors_down, vectors_up, floats_down, floats_up)
        )
    )


def keep_own(cohort: Cohort, delta: Array, start: Array) -> Aggregate:
    """Return the "aggregation" of personal models, in which nothing is shared: each participant's
    update is added to its own model, if it is finite.

    Args:
        cohort: The participants.
        delta: f32[S, d] their updates.
        start: f32[S, d] the models that they have started from.
    """
    finite = usable(delta)
    new = jnp.where((cohort.mask & finite)[:, None], start + delta, start)
    return Aggregate(new, jnp.sum(cohort.mask & ~finite, dtype=jnp.int32), cohort.mask & ~finite)
