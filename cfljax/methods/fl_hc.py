"""FL+HC (Briggs et al. 2020): a number of rounds of FedAvg with all clients, then one hierarchical clustering of the clients'
updates, then FedAvg inside the clusters.

After `warmup_rounds` rounds, in which every client takes part whatever `train.participation` says, all clients train once more
from the global model, and their updates are clustered on the host. An update that is not finite joins the first cluster. More
clusters than `max_clusters` end the run with an error. A client that arrives after the clustering joins the cluster with the
least loss.

Readings:
- Threshold. Paper: a distance, found by trying. Here: in units of the median distance of two clients, as distances of updates
  have no natural scale (they grow with the model and the learning rate). Option: `unit = "absolute"`.
- Metric and linkage. Paper: l1, l2 and cosine; single, complete, average and Ward's linkage are compared. Here: l1 and
  complete. Option: `metric`, `linkage`.
- Weights inside a cluster. Paper: by samples. Here: the same. Option: `average`.

Communication per participant and round: one model down, one update up; and once, for the clustering, one model down and one
update up per client, in the round after it. A client that comes after the clustering gets all models once.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation import cohort as cohorts
from cfljax.kernels import host
from cfljax.lazy import jnp
from cfljax.local.meter import branch
from cfljax.local.solver import Solver
from cfljax.methods import fedavg
from cfljax.methods.shared.common import first_model, with_exchange
from cfljax.methods.shared.config import TrainOptions
from cfljax.methods.shared.host_clusters import HostClusters, join_by_loss, ready_labels, round_inside
from cfljax.methods.shared.pretrain import all_updates, pretrainer
from cfljax.methods.shared.similarity import compared_size, similarity
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model

PAPER = "Briggs et al. 2020"
METRICS = {"l1": "l1", "l2": "euclidean", "cosine": "cosine"}


@dataclasses.dataclass(frozen=True)
class Config(fedavg.Config):
    """Options of FL+HC."""

    warmup_rounds: int = option(10, "rounds of FedAvg with all clients before the clustering", low=0)
    metric: str = option("l1", "distance of updates", choices=("l1", "l2", "cosine"))
    linkage: str = option("complete", "distance of clusters", choices=("complete", "average", "single", "ward"))
    threshold: float = option(0.9, "clusters farther apart than this stay apart", low=0.0, traced=True)
    unit: str = option("median", "of the threshold: the median distance of two clients, or 1", choices=("median", "absolute"))
    max_clusters: int = option(32, "most clusters there is room for; one more is an error", low=1)
    similarity: str = similarity()

    def check(self, where: str) -> None:
        """Combinations; raises SpecError."""
        if self.linkage == "ward" and self.metric != "l2":
            raise SpecError(f'{where}.linkage = "ward": is defined for metric = "l2" only, not "{self.metric}"')
        if self.similarity == "sketch" and self.metric == "l1":
            raise SpecError(f'{where}.similarity = "sketch": keeps metric = "l2" and "cosine", not "l1"')

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """The clustering must happen."""
        if self.warmup_rounds >= train.rounds:
            raise SpecError(f"{where}.warmup_rounds = {self.warmup_rounds}: must be less than train.rounds = {train.rounds}")

    def releases(self, rounds: int) -> tuple[int, int]:
        """Noised sums: at first over everybody, then over the draw."""
        return rounds - self.warmup_rounds, self.warmup_rounds

    def per_client(self, clients: int, d: int) -> int:
        """Its update, and its distances to all others."""
        return compared_size(d, self.similarity) + 2 * clients


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FL+HC: a few rounds of FedAvg, then hierarchical clustering of the clients' updates."""
    train_everyone = pretrainer(solver)

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> HostClusters:
        k = config.max_clusters
        one = jnp.arange(k) == 0  # before the clustering
        return HostClusters(jnp.tile(first_model(key, model), (k, 1)), ready_labels(federation), one)

    def round(key: Array, state: HostClusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[HostClusters, Info]:
        def train(cohort: Cohort) -> tuple[HostClusters, Info]:
            found, info = round_inside(solver, key, federation, cohort, state, hyper, config.average)
            return found, info._replace(finite=None)  # its length is that of the cohort

        t, there = cohort.round, cohorts.present(federation, cohort.round)
        if cohort.ids.shape[0] == federation.clients or config.warmup_rounds == 0:
            found, info = train(cohort)
        else:
            everyone = jnp.arange(federation.clients, dtype=jnp.int32)
            full = cohorts.gather(key, federation, everyone, there, t, hyper)
            found, info = branch(t < config.warmup_rounds, lambda: train(full), lambda: train(cohort))
        asked = jnp.where(t == config.warmup_rounds, jnp.sum(there, dtype=jnp.int32), 0)
        return found, info._replace(traffic=with_exchange(info.traffic, asked, beside=True))

    def regroup(key: Array, state: HostClusters, federation: Federation, hyper: Hyper, round: int) -> HostClusters:
        ids = np.flatnonzero(np.asarray(cohorts.present(federation, jnp.int32(round))))
        if not len(ids):  # nobody has training data
            return state
        ids = ids[np.argsort(np.asarray(federation.uid)[ids], kind="stable")].astype(np.int32)
        lr = hyper["lr"] * hyper.get("lr_decay", 1.0) ** round
        parts = train_everyone(key, federation, {**hyper, "lr": lr}, np.asarray(state.models[0]), ids)
        updates = all_updates(parts, config.similarity)
        own = cluster(updates, host.distance_matrix(updates, METRICS[config.metric]), config, float(hyper["threshold"]))
        number = int(own.max(initial=0)) + 1
        if number > config.max_clusters:
            why = f"threshold = {float(hyper['threshold']):g} makes {number} clusters; raise one of them"
            raise SpecError(f"method.fl_hc.max_clusters = {config.max_clusters}: {why}")
        labels = jnp.full(federation.clients, -1, jnp.int32).at[ids].set(own)
        models = jnp.tile(jnp.asarray(state.models[0]), (config.max_clusters, 1))
        return HostClusters(models, labels, jnp.arange(config.max_clusters) < number)

    def score(state: HostClusters, federation: Federation, hyper: Hyper) -> Array:
        return join_by_loss(solver, federation, state, jnp.ones(federation.clients, bool))

    return Method(
        init,
        round,
        models=lambda state: (state.models, state.labels),
        regroup=regroup,
        regroup_after=lambda rounds: (config.warmup_rounds,),
        score=score,
    )


def cluster(updates: np.ndarray, distances: np.ndarray, config: Config, threshold: float) -> np.ndarray:
    """HOST. i32[n] labels of the updates f32[n, d], whose distances are f64[n, n]."""
    pairs = distances[np.triu_indices(len(distances), 1)]
    pairs = pairs[np.isfinite(pairs)]
    if config.unit == "median" and len(pairs):
        threshold *= float(np.median(pairs))
    threshold = max(threshold, float(np.finfo(np.float64).tiny))  # equal updates are one cluster
    points, metric = (updates, "euclidean") if config.linkage == "ward" else (distances, "precomputed")
    labels = host.agglomerative(points, distance_threshold=threshold, linkage=config.linkage, metric=metric)
    return host.settle_noise(updates, labels)


fl_hc = Entry(Config, make)
