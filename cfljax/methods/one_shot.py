"""One-shot K-means (Ghosh et al. 2019, "Robust federated learning in a heterogeneous environment"): every client first trains alone
from w_0 until it has converged. K-means on the trained weights then finds the clusters, and all rounds are FedAvg inside them.

A client that arrives late trains in the same way and joins the nearest centre; so does one whose weights are not finite (the first
centre).

Readings:
- Convergence of the first training. Paper: the minimiser of the local loss. Here: ten epochs. Option: `pretrain_epochs`.
- Start of the clusters. Paper: not said. Here: w_0 again. Option: none.
- Training inside clusters. Paper: a Byzantine-robust mean. Here: the mean; `train.robust` of the run has medians and trimmed means.
  Option: `average` for the weights.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`methods/shared/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- K-means. Paper: any algorithm, or a trimmed one. Here: K-means++ with 10 restarts and at most 300 iterations. Option: none.

Communication: per participant one model down, one update up; per client one model down and its weights up when it arrives (in
round 0 all that are there from the start).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.devices.quick import quick_jit
from cfljax.kernels.choose import nearest
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.mix import members
from cfljax.lazy import jnp
from cfljax.local.averages import AVERAGES
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import CountedConfig, Number, count, extras_of, number_of, setup_of, with_probe
from cfljax.methods.shared.common import first_model_on_host, traffic, train_clusters
from cfljax.methods.shared.pretrain import all_updates, late, pretrainer, ready, settled, solver_before, with_pretraining
from cfljax.methods.shared.similarity import compared_size, similarity
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Tree

PAPER = "Ghosh et al. 2019"


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig):
    """Options of one-shot K-means."""

    averaged = ("models",)
    waits = ""

    clusters: int | str = option(3, 'number of clusters, or "auto": found before the first round', low=1, choices=("auto",))
    pretrain_epochs: int = option(10, "local epochs before the clustering", low=1)
    average: str = option("samples", "weights of the participants inside a cluster", choices=AVERAGES)
    similarity: str = similarity()

    def per_client(self, clients: int, d: int) -> int:
        """Its first update."""
        return compared_size(d, self.similarity)


class State(NamedTuple):
    """The clusters, and who will join which."""

    models: Array
    """f32[K, d]."""
    labels: Array
    """i32[C] the cluster of each client; −1: it has not arrived yet."""
    guess: Array
    """i32[C] the cluster of each client, also of those that have not arrived yet."""
    number: Number | None = None
    """The number of clusters, if it was found."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """One-shot K-means: clusters found once by K-means on locally trained weights."""
    train_before = pretrainer(solver_before(solver, config.pretrain_epochs))

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        wanted = 1 if config.clusters == "auto" else config.models_kept
        first, later = ready(federation, "one_shot", wanted), late(federation)
        ids, start = np.concatenate([first, later]), first_model_on_host(key, model)
        moves = all_updates(train_before(key, federation, hyper, start, ids), config.similarity)
        there, uid = np.arange(len(ids)) < len(first), np.asarray(federation.uid)[ids]
        number = number_of(config, moves[there])
        k = int(count(number, config.models_kept))
        found = np.asarray(_find(keys.fold(key, "one_shot"), moves, there, uid, k))
        labels, guess = np.full((2, federation.clients), -1, np.int32)
        labels[first], guess[ids] = found[: len(first)], found
        models = np.tile(start, (config.models_kept, 1))
        return {"models": models, "labels": labels, "guess": guess} | setup_of(number)

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        return State(**setup)

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        labels = settled(state.labels, state.guess, federation, cohort.round)
        sent = with_probe(with_pretraining(traffic(cohort), federation, cohort.round), state.number, cohort)
        which = jnp.maximum(labels[cohort.ids], 0)
        models, info = train_clusters(solver, key, federation, cohort, state.models, which, hyper, config.average, sent)
        return state._replace(models=models, labels=labels), info

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        return jnp.where(state.labels >= 0, state.labels, state.guess)

    def models(state: State) -> tuple[Array, Array]:
        return state.models, state.labels

    return Method(init, round, models, setup, score=score, extras=lambda state: extras_of(state.number))


@functools.partial(quick_jit, static=(4,))
def _find(key: Array, moves: Array, there: Array, uid: Array, clusters: int) -> Array:
    """i32[n]: the clusters of the updates f32[n, d]; only clients that are there bool[n] decide where the centres are."""
    found = kmeans(key, moves, clusters, there, uid)
    used = members(found.labels, clusters).any(axis=1)
    used = used.at[0].set(used[0] | ~used.any())
    return jnp.where(found.labels >= 0, found.labels, nearest(moves, found.centres, used))


one_shot = Entry(Config, make)
