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

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels.mix import members
from cfljax.lazy import jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.methods.fedavg import FedAvg
from cfljax.registry.options import Value
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.config import TrainOptions
from cfljax.round.recipes import Ask, Before, Done, GradientAt, OwnSteps, State, StepRule, option
from cfljax.types import Array, Hyper, LocalStep, Model

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

# What the steps carry: where they are, the losses noted f32[notes], their number i32[]
At = tuple[Position, Array, Array]


@dataclasses.dataclass(frozen=True)
class FedGWC(FedAvg):
    """FedGWC: clusters split by how typical their members' training losses are.

    Each cluster draws `clients_per_cluster` participants, who train as in FedAvg and note the
    losses of their first `notes` steps. Losses near the cluster's mean give a participant a large
    reward, which moves its row of W f32[C, C] at its cluster mates' columns. The host splits a
    cluster whose W has changed by less than `eps` for long enough, by spectral clustering of
    affinities that decay with `gamma`. `max_clusters` is K, the rows of the models f32[K, d].
    """

    splits = True
    own_steps = True
    joins_on_arrival = True
    compares_all = True
    pairs = 1
    reveals = "the clustering by losses"

    clients_per_cluster: int = option(
        10, "participants per round and cluster (train.participation is not used)", low=1
    )
    gamma: float = option(0.1, "decrease of the affinity with the distance", low=0.0, traced=True)
    eps: float = option(
        1e-5, "mean squared change below which a cluster can be split", low=0.0, traced=True
    )
    notes: int = option(7, "number of first local steps whose losses are used", low=1)
    max_clusters: int = option(16, "largest number of clusters; more are an error", low=1)

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
        """Remember W f32[C, C], and of each cluster the running mean f32[K] and the rounds i32[K]
        that it has been small."""
        c = len(state.labels)
        k = state.clusters
        trains = jnp.asarray(ask.federation.trains)
        w = jnp.full((c, c), 1 / jnp.maximum(jnp.sum(trains), 1) ** 2)
        return state._replace(
            guess=trains.astype(jnp.int32) - 1, memory=(w, jnp.ones(k), jnp.zeros(k, jnp.int32))
        )

    def join(self, ask: Ask, state: State) -> Array:
        """Return the clusters with the least loss, i32[S]."""
        return ask.least(self.score(ask, state))

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Plain steps, whose first losses are noted."""
        move = make_stepper(rule, LocalStep.of(hyper), ())

        def step(gradient: GradientAt, at: At) -> tuple[At, Array]:
            position, losses, number = at
            new = gradient(position.params)
            return (
                move(position, new),
                losses.at[number].set(new.loss, mode="drop"),
                number + 1,
            ), new.loss

        begin = lambda start, home: (start_at(rule, start, None), home, jnp.int32(0))  # noqa: E731
        return OwnSteps(begin, step, lambda at: (at[0].params, at[1]))

    def remember(
        self, ask: Ask, before: State, after: State, done: Done
    ) -> tuple[Array, Array, Array]:
        """Return W, the running means and the rounds."""
        (w, small, calm), which, ids, losses = before.memory, done.which, ask.cohort.ids, done.notes
        assert losses is not None
        ask.report(self.notes, ask.cohort.mask)
        member = members(which, before.clusters, ask.cohort.mask & done.sane)
        known = jnp.isfinite(losses)
        weight = member * ask.sizes
        total = jnp.maximum(weight @ known, 1e-16)
        away = jnp.where(
            known, losses - (weight @ jnp.where(known, losses, 0.0) / total)[which], 0.0
        )
        spread = weight @ away**2 / total + 1e-16
        reward = (known * jnp.exp(-0.5 * away**2 / spread[which])).sum(1) / jnp.maximum(
            known.sum(1), 1
        )
        drawn = member.sum(1)
        size = members(before.labels, before.clusters).sum(1)
        alpha = drawn / jnp.maximum(size, 1)
        share = reward / jnp.maximum(member @ reward, 1e-16)[which]
        pairs = (member[:, :, None] & member[:, None, :]).any(0)
        at = (ids[:, None], ids[None, :])
        change = jnp.where(pairs, alpha[which][:, None] * (share[:, None] - w[at]), 0.0)
        square = member @ (change**2).sum(1) / jnp.maximum(drawn, 1) ** 2
        small = jnp.where(drawn > 0, (1 - alpha) * small + alpha * square, small)
        return (
            w.at[at].add(change),
            small,
            jnp.where(drawn > 0, jnp.where(small < ask.hyper["eps"], calm + 1, 0), calm),
        )

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Each cluster whose W has come to rest is split, if a split is good."""
        models, labels, active = (
            np.array(each) for each in (state.models, state.labels, state.active)
        )
        w, small, calm = (np.array(each) for each in state.memory)
        for k in np.flatnonzero(active):
            own = ask.ordered(np.flatnonzero(labels == k))
            times = len(own) / self.clients_per_cluster
            if times <= 1 or calm[k] < np.rint(times):
                continue
            found = split(
                w[np.ix_(own, own)].astype(np.float64),
                float(ask.hyper["gamma"]),
                min(int(times) + 1, 5),
            )
            new = np.flatnonzero(~active)[: found.max()]
            if len(new) < found.max():
                raise SpecError(
                    f"method.fedgwc.max_clusters = {self.max_clusters}: cluster {k} splits; "
                    "raise it"
                )
            slots = np.append(k, new)
            labels[own], models[new], active[new], small[slots], calm[slots] = (
                slots[found],
                models[k],
                True,
                1.0,
                0,
            )
        memory = tuple(map(jnp.asarray, (w, small, calm)))
        return state._replace(
            models=jnp.asarray(models),
            labels=jnp.asarray(labels),
            active=jnp.asarray(active),
            memory=memory,
        )


def split(w: np.ndarray, gamma: float, most: int) -> np.ndarray:
    """HOST. Return the split of a cluster with the weights W f64[n, n], of fewer than `most`,
    i64[n]; all 0 if no split is good."""
    from scipy.spatial.distance import cdist
    from sklearn.cluster import SpectralClustering
    from sklearn.manifold import SpectralEmbedding
    from sklearn.metrics import davies_bouldin_score

    w = (w.T - w.min()) / max(np.ptp(w), 1e-8)
    across = (np.diagonal(w)[:, None] - w.T) ** 2
    affinity = np.exp(-gamma * (cdist(w, w, "sqeuclidean") - across - across.T)) * ~np.eye(
        len(w), dtype=bool
    )
    best, chosen = 1.0, np.zeros(len(w), int)
    for n in range(2, min(most, len(w))):
        same = {"n_components": n, "affinity": "precomputed", "random_state": 0}
        found = SpectralClustering(n, assign_labels="cluster_qr", **same).fit_predict(affinity)
        points = SpectralEmbedding(**same).fit_transform(affinity)
        if len(np.unique(found)) > 1 and (score := davies_bouldin_score(points, found)) < best:
            best, chosen = score, found
    return chosen
