"""`every = N`: clients are clustered anew after each N rounds, by the same steps as before round 0, from where their data are then.

Who is there by then takes part, and all draws are new, that of the model which they pre-train from among them. Each new cluster
begins with the trained model that most of its members had, of several the first one; one whose members had none, as the set-up
makes it. The round that follows counts what is sent for it, as round 0 does.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.local.optimiser import decayed
from cfljax.methods.shared.config import TrainOptions
from cfljax.registry.options import option
from cfljax.types import Array, Federation, Hyper, Method, Tree


class Options(Protocol):
    """What a method's options say about clustering anew."""

    @property
    def every(self) -> int | None:
        """Rounds after which clients are clustered anew; None: they never are."""

    @property
    def auto(self) -> str:
        """How a number of clusters is found."""

    @property
    def counts_clusters(self) -> bool:
        """Whether it is."""

    @property
    def snapshots(self) -> bool:
        """Whether matrices of the clustering are kept."""


def every() -> int | None:
    """The option of methods that cluster before round 0."""
    return option(None, "rounds after which clients are clustered anew; without it once", low=1)


def times(rounds: int, every: int | None) -> int:
    """How often clients are clustered in a run."""
    return 1 if every is None else 1 + (rounds - 1) // every


def clustered(round: Array, every: int | None) -> Array:
    """bool[]: whether clients were clustered just before this round."""
    return round == 0 if every is None else round % every == 0


def check_anew(config: Options, where: str) -> None:
    """Raises SpecError if the method's options do not go together with `every`. `where`: the name of their table."""
    if config.every is None:
        return
    if config.counts_clusters and config.auto == "val_loss":
        raise SpecError(f'{where}.every = {config.every} with auto = "val_loss": numbers are tried once; take "silhouette"')
    if config.snapshots:
        raise SpecError(f"{where}.every = {config.every} with snapshots = true: they are of one clustering; leave one of them out")


def check_run_anew(config: Options, where: str, train: TrainOptions) -> None:
    """Raises SpecError if the table `train` does not go together with `every`."""
    if config.every is None:
        return
    beside = [f"train.{name}" for name in ("server", "asynchronous") if getattr(train, name) is not None]
    if beside := [train.divided_by] * bool(train.divided_by) + beside:
        raise SpecError(f"{where}.every = {config.every} with {beside[0]}: new clusters have other models; leave one of them out")


def with_anew(config: Options, method: Method) -> Method:
    """The method, whose clients are clustered anew if its options say so. Its state has `models` f32[K, d], with the same K after
    any set-up, `labels` i32[C] (−1: none yet), and `guess` i32[C], the cluster that a client without a label will join."""
    if (every := config.every) is None:
        return method
    assert method.setup is not None
    prepare = method.setup

    def regroup(key: Array, state: Tree, federation: Federation, hyper: Hyper, round: int) -> Tree:
        arrived = jnp.where(jnp.asarray(federation.arrive) <= round, 0, federation.arrive)
        now, numbers = dataclasses.replace(federation, arrive=arrived), decayed(hyper, jnp.int32(round))
        fresh = method.init(key, now, numbers, prepare(key, now, numbers))
        models = handed_on(np.asarray(state.models), _clusters(state), np.asarray(fresh.models), _clusters(fresh))
        return fresh._replace(models=jnp.asarray(models))

    return method._replace(regroup=regroup, regroup_after=lambda rounds: tuple(range(every, rounds, every)))


def _clusters(state: Tree) -> np.ndarray:
    """HOST. i32[C]: the cluster that each client is in or will join; −1: none."""
    return np.where(np.asarray(state.labels) >= 0, state.labels, state.guess)


def handed_on(models: np.ndarray, before: np.ndarray, fresh: np.ndarray, after: np.ndarray) -> np.ndarray:
    """HOST. f32[K, d] the models that new clusters begin with. `models` f32[K, d] and clusters `before` i32[C]: what clients had;
    `fresh` f32[K, d] and `after` i32[C]: what the set-up has made."""
    given = fresh.copy()
    for k in np.unique(after[(after >= 0) & (before >= 0)]):
        given[k] = models[np.bincount(before[(after == k) & (before >= 0)]).argmax()]
    return given
