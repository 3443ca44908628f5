"""FedGWC (Licciardi et al. 2025): clusters are split by how typical their members' losses are while
they train.

Each cluster draws its own participants. The reward of one is the mean, over its first local steps
s, of exp(−(l_s − μ_s)² / 2σ_s²), μ_s and σ_s² being mean and variance, by samples, of the cluster's
participants. α being the share of the members that are drawn, W_ij ← (1 − α) W_ij + α · reward_i /
sum of rewards for all pairs of them; the mean squared change has a running mean by α. When it has
been below `eps` for as many rounds as it takes to draw all members, the rows of Wᵀ, scaled to [0,
1], give the affinities exp(−γ · squared distance without both members), and spectral clusterings
are tried. The one with the least Davies–Bouldin score splits the cluster, if that is below 1.

A client that arrives late begins in the first cluster; a newcomer is scored in the one with the
least loss.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels.mix import members
from cfljax.lazy import jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.methods.fedavg import FedAvg
from cfljax.registry.options import Value
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.config import TrainOptions
from cfljax.round.recipes import (
    Ask,
    Before,
    GradientAt,
    Noting,
    OnArrival,
    OneCluster,
    OwnSteps,
    PerCluster,
    RoundResult,
    State,
    StepRule,
    option,
)
from cfljax.types import Array, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="FedGWC",
    family="clustered",
    authors="Licciardi et al.",
    year=2025,
    paper="Interaction-aware Gaussian weighting for clustered federated learning",
    venue="ICML",
    link="https://arxiv.org/abs/2502.03340",
    communication="one model down, one update and its losses up",
)
READINGS = (
    Reading(
        "Random losses",
        paper="its program can add some to μ and σ; by default none",
        here="none",
    ),
    Reading(
        "Number of parts",
        paper="its program tries 2, 3, … up to ⌊members / drawn⌋, at most 4, so that a cluster "
        "never splits with fewer than twice as many members as take part",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class FedGWC(FedAvg):
    """FedGWC: clusters split by how typical their members' training losses are.

    Each cluster draws `clients_per_cluster` participants, who train as in FedAvg and note the
    losses of their first `notes` steps. Losses near the cluster's mean give a participant a large
    reward, which moves its row of W f32[C, C] at its cluster mates' columns. The host splits a
    cluster whose W has changed by less than `eps` for long enough, by spectral clustering of
    affinities that decay with `gamma`. `max_clusters` is K, the rows of the models f32[K, d].
    """

    first_clusters = OneCluster()
    joining = OnArrival(trains=False)
    compares_all = True
    pairs = 1
    reveals = "the clustering by losses"

    clients_per_cluster: int = option(
        10, "participants per round and cluster (train.participation is not used)", low=1
    )
    gamma: float = option(0.1, "decrease of the affinity with the distance", low=0.0, traced=True)
    eps: float = option(
        1e-5,
        "mean squared change below which a cluster can be split",
        low=0.0,
        traced=True,
        search=(1e-6, 1e-2, "log"),
    )
    notes: int = option(7, "number of first local steps whose losses are used", low=1)
    max_clusters: int = option(16, "largest number of clusters; more are an error", low=1)

    @property
    def draw(self) -> PerCluster:
        """Draw clients inside each cluster."""
        return PerCluster(self.clients_per_cluster)

    @property
    def local(self) -> Noting:
        """Note the losses of the first steps."""
        return Noting(self.notes)

    def warn_run(self, where: str, train: TrainOptions, data: Value) -> list[str]:
        """Add that there are too few clients for a split."""
        clients = data.clients_that_train
        needed = 2 * self.clients_per_cluster
        if clients is None or clients >= needed:
            return super().warn_run(where, train, data)
        return super().warn_run(where, train, data) + [
            f"{where}.clients_per_cluster = {self.clients_per_cluster}: a cluster splits only if "
            f"it has {needed} members, and {clients} clients train; give a smaller number, or more "
            "clients"
        ]

    def first(self, ask: Ask, state: State) -> State:
        """Remember W, and that no cluster has come to rest."""
        clients = len(state.labels)
        trains = jnp.asarray(ask.federation.trains)
        memory = Rewards(
            w=jnp.full((clients, clients), 1 / jnp.maximum(jnp.sum(trains), 1) ** 2),
            change=jnp.ones(state.clusters),
            calm=jnp.zeros(state.clusters, jnp.int32),
        )
        return state._replace(labels_if_joining=trains.astype(jnp.int32) - 1, memory=memory)

    def join(self, ask: Ask, state: State) -> Array:
        """Return i32[S]: the clusters with the least loss."""
        return ask.least(self.score(ask, state))

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return plain steps, whose first losses are noted."""
        move = make_stepper(rule, LocalStep.of(hyper), ())

        def begin(start: Tree, home: Array) -> StepsSoFar:
            return StepsSoFar(start_at(rule, start, None), home, jnp.int32(0))

        def step(gradient: GradientAt, at: StepsSoFar) -> tuple[StepsSoFar, Array]:
            new = gradient(at.position.params)
            # Losses of later steps are dropped
            losses = at.losses.at[at.number].set(new.loss, mode="drop")
            return StepsSoFar(move(at.position, new), losses, at.number + 1), new.loss

        def end(at: StepsSoFar) -> tuple[Tree, Array]:
            return at.position.params, at.losses

        return OwnSteps(begin, step, end)

    def remember(self, ask: Ask, before: State, after: State, done: RoundResult) -> Rewards:
        """Return W and the running means after the participants' losses."""
        w, change, calm = before.memory
        which = done.which
        ids = ask.cohort.ids
        losses = done.notes
        assert losses is not None
        ask.upload(self.notes)
        member = members(which, before.clusters, ask.cohort.mask & done.finite)
        reward = _compute_rewards(losses, which, member * ask.sizes)

        # α: the share of a cluster's members that are drawn
        drawn = member.sum(1)
        alpha = drawn / jnp.maximum(members(before.labels, before.clusters).sum(1), 1)
        share = reward / jnp.maximum(member @ reward, 1e-16)[which]
        # W_ij ← (1 − α) W_ij + α · share_i, for pairs of participants of one cluster
        pairs = (member[:, :, None] & member[:, None, :]).any(0)
        at = (ids[:, None], ids[None, :])
        moves = jnp.where(pairs, alpha[which][:, None] * (share[:, None] - w[at]), 0.0)
        square = member @ (moves**2).sum(1) / jnp.maximum(drawn, 1) ** 2
        change = jnp.where(drawn > 0, (1 - alpha) * change + alpha * square, change)
        is_small = change < ask.hyper["eps"]
        calm = jnp.where(drawn > 0, jnp.where(is_small, calm + 1, 0), calm)
        return Rewards(w.at[at].add(moves), change, calm)

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Split each cluster whose W has come to rest, if a split is good."""
        models, labels, active = (
            np.array(each) for each in (state.models, state.labels, state.active)
        )
        w, change, calm = (np.array(each) for each in state.memory)
        for k in np.flatnonzero(active):
            own = ask.sort_by_uid(np.flatnonzero(labels == k))
            # As many rounds as it takes to draw all members
            times = len(own) / self.clients_per_cluster
            if times <= 1 or calm[k] < np.rint(times):
                continue
            inside = w[np.ix_(own, own)].astype(np.float64)
            found = split(inside, float(ask.hyper["gamma"]), min(int(times) + 1, 5))
            new = np.flatnonzero(~active)[: found.max()]
            if len(new) < found.max():
                raise SpecError(
                    f"method.fedgwc.max_clusters = {self.max_clusters}: cluster {k} splits; "
                    "raise it"
                )
            # The first part keeps the cluster's slot, and all parts its model
            slots = np.append(k, new)
            labels[own] = slots[found]
            models[new] = models[k]
            active[new] = True
            change[slots] = 1.0
            calm[slots] = 0
        return state._replace(
            models=jnp.asarray(models),
            labels=jnp.asarray(labels),
            active=jnp.asarray(active),
            memory=Rewards(*map(jnp.asarray, (w, change, calm))),
        )


class Rewards(NamedTuple):
    """What the server remembers of the clients' rewards."""

    # f32[C, C]: W
    w: Array
    # f32[K]: the running mean of the squared change of each cluster's part of W
    change: Array
    # i32[K]: for how many rounds of each cluster this has been below `eps`
    calm: Array


class StepsSoFar(NamedTuple):
    """What the steps of a client carry."""

    position: Position
    # f32[notes]: the losses of its first steps; NaN for steps that it has not done
    losses: Array
    # i32[]: the number of steps done
    number: Array


def _compute_rewards(losses: Array, which: Array, weight: Array) -> Array:
    """Return f32[S]: the reward of each participant, the mean over its first steps s of exp(−(l_s −
    μ_s)² / 2σ_s²), with mean and variance over the participants of its cluster.

    Args:
      losses: f32[S, notes] the losses l_s, NaN for steps that were not done.
      which: i32[S] the clusters.
      weight: f32[K, S] the samples of each participant, in the row of its cluster.
    """
    known = jnp.isfinite(losses)
    total = jnp.maximum(weight @ known, 1e-16)
    mean = weight @ jnp.where(known, losses, 0.0) / total
    away = jnp.where(known, losses - mean[which], 0.0)
    variance = weight @ away**2 / total + 1e-16
    usual = known * jnp.exp(-0.5 * away**2 / variance[which])
    return usual.sum(1) / jnp.maximum(known.sum(1), 1)


def split(w: np.ndarray, gamma: float, most: int) -> np.ndarray:
    """HOST. Return i64[n]: the parts of a cluster by the best of some spectral clusterings; all 0
    if none is good.

    Args:
      w: f64[n, n] the rows and columns of W of its members.
      gamma: The decrease of the affinity with the distance.
      most: There are fewer parts than this number.
    """
    from scipy.spatial.distance import cdist
    from sklearn.cluster import SpectralClustering
    from sklearn.manifold import SpectralEmbedding
    from sklearn.metrics import davies_bouldin_score

    w = (w.T - w.min()) / max(np.ptp(w), 1e-8)
    # The squared distance of two rows, without the columns of the two members themselves
    across = (np.diagonal(w)[:, None] - w.T) ** 2
    distance = cdist(w, w, "sqeuclidean") - across - across.T
    affinity = np.exp(-gamma * distance) * ~np.eye(len(w), dtype=bool)
    best = 1.0
    chosen = np.zeros(len(w), int)
    for n in range(2, min(most, len(w))):
        same = {"n_components": n, "affinity": "precomputed", "random_state": 0}
        found = SpectralClustering(n, assign_labels="cluster_qr", **same).fit_predict(affinity)
        points = SpectralEmbedding(**same).fit_transform(affinity)
        # A clustering can leave parts empty; one part has no score
        if len(np.unique(found)) == 1:
            continue
        score = davies_bouldin_score(points, found)
        if score < best:
            best = score
            chosen = found
    return chosen
