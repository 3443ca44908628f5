"""SR-FCA (Vardhan et al. 2024): clusters of local models that are near each other, refined by the
models of the clusters.

Every client first trains alone. Then, in random order, a client without a cluster begins one with
all others without one whose models are near its own, and clusters that are too small are dissolved.
The rest train from w_0. After `refine_every` rounds each client goes to the nearest of the trained
models, clusters that are too small are dissolved, those with near models are united in the same
way, and training begins again.

Readings:
- Distance. Paper: its program has Euclidean distances, or losses on each other's data. Here:
  Euclidean. Option: none.
- Near. Paper: below a number; its program can set it by a share of all pairs. Here: by a share.
  Option: `fraction`.
- Clients of dissolved clusters. Paper: its program leaves them out. Here: they join the nearest
  cluster. Option: none.
- Start of local models. Paper: its program draws one for each client. Here: w_0. Option: none.
- Mean. Paper: trimmed. Here: by samples. Option: `average`, `train.robust`.

Communication per participant and round: one model down, one update up; and the same once for every
client, before the first round. A client that arrives later gets all models once, and joins the
cluster with the least loss.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from cfljax import keys
from cfljax.kernels import host
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.recipes import Before, Begun, State, option, shortened, similarity

PAPER = "Vardhan et al. 2024"


@dataclasses.dataclass(frozen=True)
class SRFCA(FedAvg):
    """SR-FCA: clusters of near local models, refined by the clusters' models."""

    compares_all, pairs = True, 1

    fraction: float = option(
        0.3, "share of the pairs of clients that count as near", low=0.0, high=1.0, traced=True
    )
    min_size: int = option(2, "smallest size of a cluster", low=1)
    pretrain_epochs: int = option(10, "local epochs before the clustering", low=1)
    refine_every: int = option(10, "rounds of training before each refinement", low=1)
    refinements: int = option(2, "number of refinements", low=0)
    max_clusters: int = option(32, "largest number of clusters; more are an error", low=1)
    similarity: str = similarity(again=False)

    def begin(self, ask: Before) -> Begun:
        """HOST. The clusters of local models, which are remembered with w_0 and the distance that
        is near."""
        ids, start = ask.here(), ask.first_model()
        moves = ask.updates(start, ids, epochs=self.pretrain_epochs, similarity=self.similarity)
        local = np.zeros((len(ask.uid), moves.shape[1]), np.float32)
        local[ids] = moves = np.where(np.isfinite(moves).all(axis=1, keepdims=True), moves, 0.0)
        apart = host.distance_matrix(moves)
        pairs = np.sort(apart[np.triu_indices(len(ids), 1)])
        near = (
            pairs[min(math.ceil(float(ask.hyper["fraction"]) * len(pairs)), len(pairs) - 1)]
            if len(pairs)
            else 0.0
        )
        found = unite(apart <= near, ask, ask.uid[ids])
        large = self.large(found)
        means = np.stack([moves[found == k].mean(axis=0) for k in large])
        own = np.where(np.isin(found, large), found, large[nearest(moves, means)])
        made = ask.divide(
            State(jnp.tile(start, (self.max_clusters, 1)), jnp.int32(0)),
            ids,
            host.renumber_by_appearance(own),
        )
        models, labels, active = (
            np.asarray(each) for each in (made.models, made.labels, made.active)
        )
        return Begun(models, labels, active=active, memory=(start, local, np.float32(near)))

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the refinements."""
        return tuple(range(self.refine_every, rounds, self.refine_every))[: self.refinements]

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. A refinement."""
        start, local, near = (np.asarray(each) for each in state.memory)
        ids = ask.ordered(np.flatnonzero(local.any(axis=1)))
        if not len(ids):  # all updates were zero, or broken
            return state
        models = shortened(
            np.asarray(state.models)[np.asarray(state.active)] - start, self.similarity
        )
        models = models[self.large(nearest(local[ids], models))]
        united = unite(host.distance_matrix(models) <= near, ask, np.arange(len(models)))
        own = host.renumber_by_appearance(united[nearest(local[ids], models)])
        return ask.divide(
            state._replace(models=jnp.asarray(state.models).at[0].set(start)), ids, own
        )

    def large(self, labels: np.ndarray) -> np.ndarray:
        """HOST. The clusters with enough members; all, if none has."""
        names, sizes = np.unique(labels, return_counts=True)
        return names[(sizes >= self.min_size) | (sizes.max(initial=0) < self.min_size)]


def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """HOST. i64[n]: the centre f32[K, m] that is nearest to each of the points f32[n, m]."""
    from scipy.spatial.distance import cdist

    return cdist(points, centres).argmin(axis=1)


def unite(near: np.ndarray, ask: Before, uid: np.ndarray) -> np.ndarray:
    """HOST. i64[n]: in random order, each without a cluster begins one with all others without one
    that are near it: bool[n, n]."""
    labels = np.full(len(near), -1)
    for pivot in np.argsort(
        np.asarray(keys.scores(ask.key, "pivots", jnp.asarray(uid))), kind="stable"
    ):
        if labels[pivot] < 0:
            labels[(near[pivot] & (labels < 0)) | (np.arange(len(near)) == pivot)] = pivot
    return labels
