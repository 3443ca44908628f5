"""OCFL, OPTICS-based clustering optimisation (Lu et al. 2022): all clients train one epoch from the same
model, OPTICS clusters their weights without being given a number of clusters, and FedAvg runs inside the clusters from then on.

1. All clients train `pretrain_epochs` epochs from w_0; the server flattens their weights.
2. OPTICS, once, on the host. Where it finds no cluster, everybody is in one, with a warning.
3. Noise points join a cluster, are clusters of their own, or are left out of training and scored with the initial model. Kept with
   the results: `ari` against the true groups at this point, `ari_optics` with every noise point as a cluster of its own, `found`
   clusters and `noise` points.
4. While there are more than `merge_to` clusters, the two with the most similar mean weights become one.
5. FedAvg inside each cluster: each round draws `clients_per_cluster` clients of each (all, where it has fewer), so
   `train.participation` has no effect; `train.dropout` and `train.stragglers` act on the clients drawn. A client that arrives late
   trains as in step 1 and joins the cluster with the most similar mean weights.

Readings:
- Noise points. Paper: nothing. Here: each joins the cluster with the most similar mean weights by cosine. Option: `noise =
  "isolate"`, `"drop"`.
- Distance. Paper: OPTICS's default on the weights; cosine where it argues. Here: Euclidean. Option: `metric = "cosine"`.
- Merging. Paper: ten clusters into three, by cosine, "to reduce the number artificially". Here: none unless asked; to a given
  number, or to one found from the clients' updates of step 1 (`methods/shared/auto.py`). Option: `merge_to`,
  `auto`, `most`.
- Times. Paper: once. Here: once; or anew after some rounds (`methods/shared/anew.py`), where clusters have `max_clusters` places
  and more clusters than places are merged as in step 4. Option: `every`, `max_clusters`.
- Start of the clusters. Paper: not said. Here: w_0. Option: none.
- Weights inside a cluster. Paper: by samples. Here: the same. Option: `average`.
- Participants. Paper: m random clients per cluster. Here: ten. Option: `clients_per_cluster`.

Communication: per participant one model down, one update up; per client one model down and its weights up when it arrives (in
round 0 all that are there from the start).
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.federation import cohort as cohorts
from cfljax.kernels import host
from cfljax.lazy import jax, jnp
from cfljax.local.averages import AVERAGES
from cfljax.local.solver import Solver
from cfljax.methods.shared.anew import every, with_anew
from cfljax.methods.shared.auto import CountedConfig, Number, extras_of, number_of, setup_of, with_probe
from cfljax.methods.shared.common import first_model, first_model_on_host, traffic, train_clusters
from cfljax.methods.shared.host_clusters import places
from cfljax.methods.shared.pretrain import (
    all_updates,
    late,
    pretrainer,
    ready,
    settled,
    solver_before,
    with_pretraining,
)
from cfljax.methods.shared.similarity import compared_size, shortened, similarity
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Tree

PAPER = "Lu et al. 2022, “Federated learning based on OPTICS clustering optimization” (not the two others called OCFL)"


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig):
    """Options of OCFL."""

    waits = "it draws the participants of each cluster itself"

    pretrain_epochs: int = option(1, "local epochs before the clustering", low=1)
    min_samples: int = option(2, "OPTICS: neighbours of a core point", low=2)
    xi: float = option(0.2, "OPTICS: steepness that bounds a cluster", low=0.0, high=1.0)
    metric: str = option("euclidean", "OPTICS: distance of the weights", choices=("euclidean", "cosine"))
    noise: str = option("nearest", "what becomes of noise points", choices=("nearest", "isolate", "drop"))
    merge_to: int | str | None = option(
        None, 'merge similar clusters down to this number, or "auto": one that is found', low=1, choices=("auto",)
    )
    clients_per_cluster: int = option(10, "participants per round and cluster (train.participation has no effect)", low=1)
    average: str = option("samples", "weights of the participants inside a cluster", choices=AVERAGES)
    every: int | None = every()
    max_clusters: int = option(16, "with `every`: the most clusters", low=1)
    similarity: str = similarity()

    def check(self, where: str) -> None:
        """Combinations; raises SpecError."""
        if self.every is None and self.max_clusters != Config.max_clusters:
            raise SpecError(f"{where}.max_clusters = {self.max_clusters}: it has an effect only with `every`; leave it out")

    def releases(self, rounds: int) -> tuple[int, int]:
        """Noised sums: the draw inside clusters is taken for everybody."""
        return 0, rounds

    @property
    def counts_clusters(self) -> bool:
        """Whether the number to merge to is found."""
        return self.merge_to == "auto"

    def per_client(self, clients: int, d: int) -> int:
        """Its first update."""
        return compared_size(d, self.similarity)


class State(NamedTuple):
    """The clusters, and how they were found."""

    models: Array
    """f32[K, d]; with `noise = "drop"` one more, the initial model."""
    labels: Array
    """i32[C]; −1: dropped, or not there yet."""
    guess: Array
    """i32[C] the cluster of clients that come late; −1: dropped."""
    extras: dict[str, Array]
    """`ari`, `ari_optics`, `found` and `noise` of step 3."""
    number: Number | None = None
    """The number of clusters to merge to, if it was found."""


class OpticsClusters(NamedTuple):
    """HOST. What step 2 to 4 make of the weights of n clients."""

    labels: np.ndarray
    """i32[n]; −1: dropped."""
    extras: dict[str, np.ndarray]


def make(config: Config, model: Model, solver: Solver) -> Method:
    """OCFL: clusters found once by OPTICS on the weights after one local epoch."""
    train_before, every = pretrainer(solver_before(solver, config.pretrain_epochs)), config.every

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        first, later = ready(federation, "ocfl"), late(federation)
        start = first_model_on_host(key, model)
        moves = all_updates(train_before(key, federation, hyper, start, np.concatenate([first, later])), config.similarity)
        weights = shortened(start[None], config.similarity) + moves
        n = len(first)
        number = number_of(config, moves[:n])
        found = cluster(weights[:n], np.asarray(federation.group)[first], config, None if number is None else int(number.clusters))
        labels, guess = np.full((2, federation.clients), -1, np.int32)
        labels[first] = found.labels
        known = np.concatenate([found.labels, np.full(len(later), -1)])
        guess[first], guess[later] = found.labels, host.nearest_mean_cosine(weights, known, np.arange(n, len(known)))
        rows = len(places(int(found.labels.max()) + 1)) if every is None else config.max_clusters
        models = np.tile(start, (rows, 1))  # spare ones never meet a client
        return {"models": models, "labels": labels, "guess": guess, "extras": found.extras} | setup_of(number)

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        models = setup["models"]
        if config.noise == "drop":
            models = jnp.concatenate([models, first_model(key, model)[None]])
        return State(**setup | {"models": models})

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        labels = settled(state.labels, state.guess, federation, cohort.round)
        clusters = state.models.shape[0] - (config.noise == "drop")
        drawn = draw(key, federation, labels, clusters, config.clients_per_cluster, cohort.round, hyper)
        sent = with_probe(with_pretraining(traffic(drawn), federation, cohort.round, every), state.number, cohort, every)
        which = jnp.maximum(labels[drawn.ids], 0)
        models, info = train_clusters(solver, key, federation, drawn, state.models, which, hyper, config.average, sent)
        info = info._replace(diag={"participants": jnp.sum(drawn.mask, dtype=jnp.int32)})
        return state._replace(models=models, labels=labels), info

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        best = jnp.where(state.labels >= 0, state.labels, state.guess)
        return jnp.where(best >= 0, best, state.models.shape[0] - 1 if config.noise == "drop" else 0)

    def models(state: State) -> tuple[Array, Array]:
        return state.models, state.labels

    extras = lambda state: state.extras | extras_of(state.number)  # noqa: E731
    method = Method(init, round, models, setup, score=score, extras=extras)
    return with_anew(every, method)


def cluster(weights: np.ndarray, group: np.ndarray, config: Config, number: int | None = None) -> OpticsClusters:
    """HOST. Steps 2 to 4 on weights f32[n, d]; group i32[n] are the true groups, for the record. `number`: the one to merge to that
    was found, in place of a given `merge_to`."""
    raw = host.optics(weights, config.min_samples, config.xi, config.metric)
    if (raw < 0).all():
        warnings.warn("ocfl: OPTICS found no cluster; all clients are in one", stacklevel=2)
    labels = host.settle_noise(weights, raw, config.noise)
    alone = host.settle_noise(weights, raw, "isolate")
    found = {"ari": _rand_index(labels, group), "ari_optics": _rand_index(alone, group)}
    found |= {"found": float(labels.max() + 1), "noise": float(np.sum(raw < 0))}
    extras = {name: np.array(value, np.float32) for name, value in found.items()}
    wanted = config.merge_to if isinstance(config.merge_to, int) else number
    if config.every is not None:
        wanted = min(wanted or config.max_clusters, config.max_clusters)
    if wanted is not None:
        labels = host.merge_to(weights, labels, wanted)
    return OpticsClusters(labels, extras)


def _rand_index(labels: np.ndarray, group: np.ndarray) -> float:
    from sklearn.metrics import adjusted_rand_score

    known = (labels >= 0) & (group >= 0)
    return adjusted_rand_score(group[known], labels[known]) if known.any() else np.nan


def draw(key: Array, federation: Federation, labels: Array, clusters: int, most: int, round: Array, hyper: Hyper) -> Cohort:
    """Up to `most` clients of each cluster, uniformly without replacement, by the scores that draw everybody's cohorts: with one
    cluster this is the draw of FedAvg."""
    able = cohorts.present(federation, round) & (labels >= 0)
    luck = keys.scores(key, "cohort", federation.uid) >> 1
    numbers = jnp.arange(federation.clients, dtype=jnp.int32)
    belongs, _, who = jax.lax.sort((jnp.where(able, labels, clusters), ~luck, numbers), num_keys=2, is_stable=True)
    rank = numbers - jnp.searchsorted(belongs, belongs, side="left")
    chosen = (rank < most) & (belongs < clusters)
    front = jnp.argsort(~chosen, stable=True)[: min(federation.clients, clusters * most)]
    return cohorts.gather(key, federation, who[front], chosen[front], round, hyper)


ocfl = Entry(Config, make)
