"""`every = N`: clients are clustered anew after each N rounds, by the same steps as before round 0, from where their data are then.

Who is there by then takes part, and all draws are new, that of the model which they pre-train from among them. Each new cluster
begins with the trained model that most of its members had, of several the first one; one whose members had none, as the set-up
makes it. The round that follows counts what is sent for it, as round 0 does.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.lazy import jnp
from cfljax.local.optimiser import decayed
from cfljax.registry.options import option
from cfljax.types import Array, Federation, Hyper, Method, Tree


def every() -> int | None:
    """The option of methods that cluster before round 0."""
    return option(None, "rounds after which clients are clustered anew; without it once", low=1)


def clustered(round: Array, every: int | None) -> Array:
    """bool[]: whether clients were clustered just before this round."""
    return round == 0 if every is None else round % every == 0


def with_anew(every: int | None, method: Method) -> Method:
    """The method, whose clients are clustered anew after each `every` rounds; None: never. Its state has `models` f32[K, d], with
    the same K after any set-up, `labels` i32[C] (−1: none yet), and `guess` i32[C], the cluster that a client without a label will
    join."""
    if every is None:
        return method
    assert method.setup is not None
    prepare = method.setup

    def regroup(key: Array, state: Tree, federation: Federation, hyper: Hyper, round: int) -> Tree:
        arrived = jnp.where(jnp.asarray(federation.arrive) <= round, 0, federation.arrive)
        now, numbers = dataclasses.replace(federation, arrive=arrived), decayed(hyper, jnp.int32(round))
        fresh = method.init(key, now, numbers, prepare(key, now, numbers))
        before, after = (np.where(np.asarray(each.labels) >= 0, each.labels, each.guess) for each in (state, fresh))
        models = handed_on(np.asarray(state.models), before, np.asarray(fresh.models), after)
        return fresh._replace(models=jnp.asarray(models))

    return method._replace(regroup=regroup, regroup_after=lambda rounds: tuple(range(every, rounds, every)))


def handed_on(models: np.ndarray, before: np.ndarray, fresh: np.ndarray, after: np.ndarray) -> np.ndarray:
    """HOST. f32[K, d] the models that new clusters begin with. `models` f32[K, d] and clusters `before` i32[C]: what clients had;
    `fresh` f32[K, d] and `after` i32[C]: what the set-up has made."""
    given = fresh.copy()
    for k in np.unique(after[(after >= 0) & (before >= 0)]):
        given[k] = models[np.bincount(before[(after == k) & (before >= 0)]).argmax()]
    return given
