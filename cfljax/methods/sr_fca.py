"""SR-FCA (Vardhan et al. 2024): clusters of local models that are near each other, refined by the
models of the clusters.

Every client first trains alone. Then, in random order, a client without a cluster begins one with
all others without one whose models are near its own, and clusters that are too small are dissolved.
The rest train from w_0. After `refine_every` rounds each client goes to the nearest of the trained
models, clusters that are too small are dissolved, those with near models are united in the same
way, and training begins again.

With `distance = "cross_entropy"` two clients are as far apart as the mean of two losses, of each
one's local model on the other's data. Of a cluster the one loss is that of its model, the other is
the mean over its members' data.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Before,
    InitialClusters,
    State,
    option,
    similarity,
    sketch_on_host_if,
)

ABOUT = About(
    title="SR-FCA",
    family="clustered",
    authors="Vardhan, Ghosh and Mazumdar",
    year=2024,
    paper="An improved federated clustering algorithm with model-based clustering",
    venue="TMLR",
    link="https://arxiv.org/abs/2210.11538",
    communication="one model down, one update up; and the same once for every client, before the "
    'first round. With `"cross_entropy"` every client also gets the local models '
    "of all others then, and the clusters' models before each refinement, and "
    "sends a loss for each. A client that arrives later gets all models once, and "
    "joins the cluster with the least loss",
)
READINGS = (
    Reading(
        "Distance",
        paper="its program has Euclidean distances for synthetic data, and losses on each "
        "other's data for images and text",
        here="Euclidean",
        option='distance = "cross_entropy"',
    ),
    Reading(
        "Loss",
        paper="its program divides the sum of the batches' mean losses by the number of samples",
        here="the mean over samples",
    ),
    Reading(
        "Smallest cluster",
        paper="its program dissolves first clusters of at most `size_threshold`, and later keeps "
        "those of `size_threshold`",
        here="clusters of `min_size` are kept both times",
    ),
    Reading(
        "Near",
        paper="below a number; its program can set it by a share of all pairs",
        here="by a share",
        option="fraction",
    ),
    Reading(
        "Clients of dissolved clusters",
        paper="its program leaves them out",
        here="they join the nearest cluster",
    ),
    Reading(
        "Start of united clusters",
        paper="the first model; a second variant of its program has the mean of the models that "
        "are united",
        here="w_0",
    ),
    Reading(
        "Start of local models",
        paper="its program draws one for each client",
        here="w_0",
    ),
    Reading(
        "Mean",
        paper="trimmed",
        here="by samples",
        option=("average", "train.robust"),
    ),
)


@dataclasses.dataclass(frozen=True)
class SRFCA(FedAvg):
    """SR-FCA: clusters of near local models, refined by the clusters' models.

    Before the first round every client trains `pretrain_epochs` epochs from w_0. Two clients are
    near if their `distance` f32[C, C] is among the smallest `fraction` of all pairs. Pivots in
    random order gather the clients that are near them, and clusters below `min_size` are dissolved.
    After every `refine_every` rounds of FedAvg by `average`, `refinements` times, each client moves
    to the nearest cluster's model, near clusters are united, and training begins again at w_0.
    `max_clusters` is K, and `similarity = "sketch"` compares sketches.
    """

    compares_all, pairs = True, 1

    fraction: float = option(
        0.3,
        "share of the pairs of clients that count as near",
        low=0.0,
        high=1.0,
        traced=True,
        search=(0.1, 0.5, "linear"),
    )
    min_size: int = option(2, "smallest size of a cluster", low=1)
    pretrain_epochs: int = option(10, "local epochs before the clustering", low=1)
    refine_every: int = option(10, "rounds of training before each refinement", low=1)
    refinements: int = option(2, "number of refinements", low=0)
    max_clusters: int = option(32, "largest number of clusters; more are an error", low=1)
    distance: str = option(
        "euclidean",
        "distance of models, or mean of their losses on each other's data",
        choices=("euclidean", "cross_entropy"),
    )
    similarity: str = similarity(again=False)

    def check(self, where: str) -> None:
        """Raise SpecError for sketches of updates that are not compared."""
        if self.by_loss and self.similarity != "exact":
            raise SpecError(
                f'{where}.similarity = "{self.similarity}": distance = "cross_entropy" compares '
                "losses, not updates; leave it out"
            )

    @property
    def by_loss(self) -> bool:
        """Whether distances are losses on each other's data."""
        return self.distance == "cross_entropy"

    @property
    def reveals(self) -> str:
        """What the server learns of clients without noise."""
        return "the clustering by losses" if self.by_loss else "the clustering by updates"

    def per_client(self, clients: int, d: int) -> int:
        """Its losses on the data of all others and theirs on its data, or what is compared of
        it."""
        return 2 * clients if self.by_loss else super().per_client(clients, d)

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. The clusters of local models. What is known of these models is remembered, with
        w_0 and the distance that is near."""
        ids, start = ask.clients_to_cluster(), ask.first_model()
        known = self.losses(ask, start, ids) if self.by_loss else self.moves(ask, start, ids)
        apart = mutual(known) if self.by_loss else host.distance_matrix(known)
        pairs = np.sort(apart[np.triu_indices(len(ids), 1)])
        near = (
            pairs[min(math.ceil(float(ask.hyper["fraction"]) * len(pairs)), len(pairs) - 1)]
            if len(pairs)
            else 0.0
        )
        found = unite(is_near(apart, near), ask, ask.uid[ids])
        large = self.large(found)
        if self.by_loss:
            to_large = over_members(apart, found, large)
        else:
            to_large = distances(known, np.stack([known[found == k].mean(axis=0) for k in large]))
        own = np.where(np.isin(found, large), found, large[to_large.argmin(axis=1)])
        made = ask.divide(
            State(jnp.tile(start, (self.max_clusters, 1)), jnp.int32(0)),
            ids,
            host.renumber_by_appearance(own),
        )
        models, labels, active = (
            np.asarray(each) for each in (made.models, made.labels, made.active)
        )
        if self.by_loss:
            local = np.full((len(ask.uid), len(ask.uid)), np.nan, np.float32)
            local[np.ix_(ids, ids)] = known
        else:
            local = np.zeros((len(ask.uid), known.shape[1]), np.float32)
            local[ids] = known
        return InitialClusters(
            models, labels, active=active, memory=(start, local, np.float32(near))
        )

    def moves(self, ask: Before, start: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """HOST. Return f32[n, m]: what local training from `start` f32[d] has made of the clients
        i32[n]; 0 for what is broken."""
        moves = ask.updates(start, ids, epochs=self.pretrain_epochs, similarity=self.similarity)
        return np.where(np.isfinite(moves).all(axis=1, keepdims=True), moves, 0.0)

    def losses(self, ask: Before, start: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """HOST. Return f32[n, n]: the loss of each local model on the data of each of the clients
        i32[n], of which only the client's own need not be sent to it."""
        parts = ask.updates_in_parts(start, ids, epochs=self.pretrain_epochs)
        return np.concatenate(
            [ask.losses(start + moves, ids, had=len(moves)) for _, moves in parts]
        )

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return the rounds after which clusters are refined."""
        return tuple(range(self.refine_every, rounds, self.refine_every))[: self.refinements]

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Refine the clusters once, by what is remembered of the local models."""
        start, local, near = (np.asarray(each) for each in state.memory)
        usable = np.isfinite(mutual(local)) if self.by_loss else local
        ids = ask.sort_by_uid(np.flatnonzero(usable.any(axis=1)))
        if not len(ids):  # all updates were zero, or broken
            return state
        slots = np.flatnonzero(np.asarray(state.active))
        models = np.asarray(state.models)[slots]
        if self.by_loss:
            losses = ask.losses(models, ids)
            of_members = over_members(local[np.ix_(ids, ids)], np.asarray(state.labels)[ids], slots)
            apart = finite_or_far((losses.T + of_members) / 2)
        else:
            moves = sketch_on_host_if(models - start, self.similarity)
            apart = distances(local[ids], moves)
        large = self.large(apart.argmin(axis=1))
        own = apart[:, large].argmin(axis=1)
        if self.by_loss:
            between = mutual(over_members(losses[large], own, np.arange(len(large))))
        else:
            between = host.distance_matrix(moves[large])
        united = unite(is_near(between, float(near)), ask, np.arange(len(large)))
        return ask.divide(
            state._replace(models=jnp.asarray(state.models).at[0].set(start)),
            ids,
            host.renumber_by_appearance(united[own]),
        )

    def large(self, labels: np.ndarray) -> np.ndarray:
        """HOST. The clusters with enough members; all, if none has."""
        names, sizes = np.unique(labels, return_counts=True)
        return names[(sizes >= self.min_size) | (sizes.max(initial=0) < self.min_size)]


def finite_or_far(losses: np.ndarray) -> np.ndarray:
    """HOST. The losses, infinity where they are not numbers: broken data and models are near
    nothing."""
    return np.where(np.isfinite(losses), losses, np.inf)


def mutual(losses: np.ndarray) -> np.ndarray:
    """HOST. Return f32[n, n]: the distances of n models, from their losses f32[n, n] on the data of
    each."""
    return finite_or_far((losses + losses.T) / 2)


def is_near(apart: np.ndarray, near: float) -> np.ndarray:
    """HOST. Return bool[n, n]: which distances are near."""
    return (apart <= near) & np.isfinite(apart)


def over_members(rows: np.ndarray, labels: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """HOST. Return f32[m, K]: the means of rows f32[m, n] over the members of each of the clusters
    i[K]; infinity for one without members. `labels` i[n]."""
    members = [rows[:, labels == k] for k in clusters]
    means = [each.mean(axis=1) if each.size else np.full(len(rows), np.inf) for each in members]
    return finite_or_far(np.stack(means, axis=1))


def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """HOST. Return f64[n, K]: the distances of the points f32[n, m] from the centres f32[K, m]."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(points, centres))


def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """HOST. Return i64[n]: the index of the centre f32[K, m] nearest to each point f32[n, m]."""
    return distances(points, centres).argmin(axis=1)


def unite(near: np.ndarray, ask: Before, uid: np.ndarray) -> np.ndarray:
    """HOST. Cluster n clients, i64[n]: in random order, each without a cluster begins one with all
    others without one that are near it, bool[n, n]."""
    labels = np.full(len(near), -1)
    for pivot in np.argsort(
        np.asarray(keys.scores(ask.key, "pivots", jnp.asarray(uid))), kind="stable"
    ):
        if labels[pivot] < 0:
            labels[(near[pivot] & (labels < 0)) | (np.arange(len(near)) == pivot)] = pivot
    return labels
