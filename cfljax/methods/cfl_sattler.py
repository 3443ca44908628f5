"""Clustered federated learning by recursive bipartition (Sattler et al. 2020): FedAvg inside each
cluster, with all members taking part. A cluster near a stationary point of its mean loss, whose
members' updates are still large, is split in two by the directions of these updates.

A cluster is split when ‖mean Δ‖ < `eps1` and max ‖Δ_i‖ > `eps2`, after `min_rounds` rounds and with
more than `min_size` members, on the host, between rounds; both parts go on from the model of the
whole. With `similarity = "sketch"` the cosines are taken of sketches, and no more updates are held
than a block's. Each attempt to split ends a call of the compiled program, which costs milliseconds;
with a larger `split_every` there are fewer. A split beyond `max_clusters` ends the run with an
error. Kept with the results: for each cluster the one that it was `parent` of and the round it was
`born` in. A client that arrives late joins the cluster with the least loss.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.mix import members
from cfljax.lazy import jax, jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    Before,
    Everybody,
    OneCluster,
    RoundResult,
    State,
    option,
    similarity,
)
from cfljax.types import Array, Quantity

ABOUT = About(
    title="Sattler's CFL",
    family="clustered",
    authors="Sattler, Müller and Samek",
    year=2020,
    paper="Clustered federated learning: model-agnostic distributed multitask optimization under "
    "privacy constraints",
    venue="IEEE TNNLS",
    link="https://arxiv.org/abs/1910.01991",
    communication="one model down, one update up. Clients that arrive later get all models once",
)
READINGS = (
    Reading(
        "Split",
        paper="the bipartition whose largest cosine across is smallest (Algorithm 1), which is "
        "single linkage",
        here="complete linkage of 1 − cosine, as in the authors' program; with `docs/which.toml` "
        "both find the true groups",
    ),
    Reading(
        "Guard of a split",
        paper="only if γ_max < √((1 − α)/2), where α is the largest cosine across and γ_max is "
        "in [0, 1]",
        here="no guard, as in the program",
        option="gamma_max",
    ),
    Reading(
        "When",
        paper="at a stationary point",
        here="each round from `min_rounds` on, with the program's numbers",
        option=("eps1", "eps2", "min_rounds", "min_size", "split_every"),
    ),
    Reading(
        "Optimiser",
        paper="SGD. Its program keeps each client's momentum of 0.9 between rounds, to which "
        "eps1 and eps2 belong",
        here="momentum is reset in each round",
        option="train.optimizer_state",
    ),
    Reading(
        "Order",
        paper="its program splits before it averages, so by updates that are one round newer",
        here="averages, then splits",
    ),
    Reading(
        "Mean update",
        paper="weighted by samples; its program is uniform",
        here="by the weights of the aggregation, so it is the step of the cluster's model",
        option="average",
    ),
)


class SplitStatistics(NamedTuple):
    """What the next look at the clusters needs, and where they came from."""

    # f32[C, C] cosines of the updates of the last round
    similarity: Array
    # f32[C] ‖Δ_i‖ of the last round; −1: took no part
    norms: Array
    # f32[K] ‖mean Δ‖ of the last round
    steps: Array
    # i32[K]; −1: the first cluster, or not in use
    parent: Array
    # i32[K] rounds done at the split; −1: not in use
    born: Array


@dataclasses.dataclass(frozen=True)
class Sattler(FedAvg):
    """Sattler's CFL: clusters split in two while their members' updates disagree.

    After each round the host looks at the cosines f32[C, C] and norms f32[C] of the members'
    updates. A cluster is split in two (complete linkage of 1 − cosine) if the norm of its mean
    update is below `eps1`, the largest norm of a member's above `eps2`, `min_rounds` rounds are
    done and it has more than `min_size` members. `gamma_max` adds the paper's guard, `split_every`
    says how often the host looks, and `max_clusters` is K, the rows of the models f32[K, d].
    """

    diagnostics = {
        "mean_norm": Quantity("norm of each cluster's mean update"),
        "largest_norm": Quantity("largest norm of a member's update, by cluster"),
        "parent": Quantity("cluster from which each cluster was split"),
        "born": Quantity("round after which each cluster was split off"),
    }
    first_clusters = OneCluster()
    compares = True
    compares_all = True
    draw = Everybody()

    eps1: float = option(
        0.4,
        "split only below this norm of the mean update",
        low=0.0,
        traced=True,
        search=(0.05, 1.0, "log"),
    )
    eps2: float = option(
        1.6,
        "and above this largest norm of a member's update",
        low=0.0,
        traced=True,
        search=(0.2, 5.0, "log"),
    )
    min_rounds: int = option(20, "rounds before the first split", low=1, search=(2, 5, 10, 20))
    min_size: int = option(2, "a cluster with this many members or fewer is not split", low=1)
    gamma_max: float = option(
        0.0,
        "split only if it is below √((1 − largest cosine across) / 2); 0: always",
        low=0.0,
        high=1.0,
        traced=True,
    )
    split_every: int = option(1, "rounds between two attempts to split", low=1)
    max_clusters: int = option(16, "largest number of clusters; more are an error", low=1)
    similarity: str = similarity(again=False)

    def first(self, ask: Ask, state: State) -> State:
        """Make one cluster, of which no update is known."""
        k = state.clusters
        clients = state.labels.shape[0]
        nobody = jnp.full(k, -1, jnp.int32)
        memory = SplitStatistics(
            similarity=jnp.zeros((clients, clients)),
            norms=jnp.full(clients, -1.0),
            steps=jnp.zeros(k),
            parent=nobody,
            born=nobody.at[0].set(0),
        )
        return state._replace(memory=memory)

    def remember(self, ask: Ask, before: State, after: State, done: RoundResult) -> SplitStatistics:
        """Return the cosines of the updates, and their norms."""
        ids = ask.cohort.ids
        mask = ask.cohort.mask
        cosines = cosine_matrix(done.moves, mask=mask)
        similarity = jnp.zeros_like(before.memory.similarity)
        similarity = similarity.at[ids[:, None], ids[None, :]].set(cosines)
        # An update that is not finite counts as none
        norms = jnp.where(jnp.isfinite(done.norms), done.norms, 0.0)
        norms = ask.cohort.write(jnp.full(len(after.labels), -1.0), norms)
        return before.memory._replace(similarity=similarity, norms=norms)

    def remember_after_server_step(self, before: State, after: State) -> SplitStatistics:
        """Return the steps of the clusters' models."""
        return after.memory._replace(steps=jnp.linalg.norm(after.models - before.models, axis=1))

    def compute_diagnostics(
        self, ask: Ask, before: State, after: State, done: RoundResult
    ) -> dict[str, Array]:
        """Return the norms that decide about splits: of each cluster's mean update, and the
        largest of its members'."""
        norms = after.memory.norms
        member = members(after.labels, after.clusters, norms >= 0)
        return {
            "mean_norm": after.memory.steps,
            "largest_norm": jnp.where(member, norms, 0.0).max(axis=1),
        }

    def extras(self, state: State) -> dict[str, Array]:
        """Return the tree of the clusters."""
        return {"parent": state.memory.parent, "born": state.memory.born}

    def regroup_after(self, rounds: int) -> tuple[int, ...]:
        """Return every `split_every`-th round from `min_rounds` on."""
        return tuple(range(self.min_rounds, rounds, self.split_every))

    def regroup(self, ask: Before, state: State, round: int) -> State:
        """HOST. Split every cluster that meets the conditions once."""
        eps1, eps2, gamma_max = (float(ask.hyper[name]) for name in ("eps1", "eps2", "gamma_max"))
        return split(state, ask.uid, eps1, eps2, self.min_size, round, gamma_max)


def split(
    state: State,
    uid: np.ndarray,
    eps1: float,
    eps2: float,
    min_size: int,
    round: int,
    gamma_max: float = 0.0,
) -> State:
    """HOST. Split every cluster that meets the conditions once.

    Args:
      state: The state after a round.
      uid: i64[C] the clients' identities.
      eps1: A cluster is split only if the norm of its mean update is below this number,
      eps2: and the largest norm of a member's update above this one.
      min_size: It has more members than this.
      round: The number of rounds done.
      gamma_max: The paper's guard; 0: there is none.
    """
    state = jax.tree.map(np.array, state)
    models = state.models
    labels = state.labels
    active = np.asarray(state.active)
    statistics = state.memory
    for k in np.flatnonzero(active):
        own = np.flatnonzero((labels == k) & (statistics.norms >= 0))
        # So that the order of clients changes nothing
        own = own[np.argsort(uid[own], kind="stable")]
        if len(own) <= min_size:
            continue
        disagree = statistics.steps[k] < eps1 and statistics.norms[own].max() > eps2
        if not disagree:
            continue
        distances = 1.0 - statistics.similarity[np.ix_(own, own)].astype(np.float64)
        part = host.agglomerative(distances, clusters=2)
        across = distances[np.ix_(part == 1, part != 1)].min(initial=2.0)
        if gamma_max > 0 and gamma_max >= np.sqrt(max(across, 0.0) / 2):
            continue
        if active.all():
            why = f"cluster {k} splits after round {round}, which needs one more; raise it"
            raise SpecError(f"method.cfl_sattler.max_clusters = {len(active)}: {why}")
        # One part keeps the cluster's slot, and both its model
        new = int(np.argmin(active))
        labels[own[part == 1]] = new
        models[new] = models[k]
        active[new] = True
        statistics.parent[new] = k
        statistics.born[new] = round
    return state
