"""StoCFL (Zeng et al. 2023): each client begins as a cluster of its own; clusters whose first moves are alike become one.

A participant without a cluster first trains from an anchor, the initial model w_0; ψ_i is its update. Before the round's
training, pairs of clusters (of all that have been seen, new ones included) whose mean ψ have a cosine of at least `tau` are united,
the most similar first; the cosines are those at the start of the round. In the round all participants train twice on the same
batches: the global model ω as in FedAvg, and their cluster's model with a pull λ/2 · ‖ω_k − ω‖² to the ω that they were sent. A
new cluster begins at ω. The accuracy of ω is the diagnostic `accuracy_global`.

There is room for `max_clusters` clusters: who finds none joins the most similar one, whatever `tau` says (diagnostic
`without_room`). The server keeps the sums of ψ by cluster, of sketches of 4,096 numbers or (`similarity = "exact"`) as they are. A
client that was never drawn, a newcomer too, trains from the anchor when it is scored: it gets the cluster with the most similar
mean ψ if that cosine is at least `tau`, else ω (`train.score = "assigned"` scores the others alone).

Readings:
- First move. Paper: the gradient of the client's loss at the anchor; its program trains 10 or 20 epochs from it. Here: the update
  of one epoch. Option: `pretrain_epochs`.
- Global model. Paper: each participant trains the server's ω. In its program each trains the ω of the one before it, and the
  published numbers have this chain. Here: the server's. Option: none.
- Clusters compared. Paper: its program compares those of the round's participants, by the mean of these participants' ψ. Here: all
  that have been seen, by the mean of all members' ψ. Option: none.
- Model of united clusters. Paper: its program keeps that of the larger cluster. Here: the same. Option: none.
- Weights of the means. Paper: its program has equal ones. Here: by samples. Option: `average = "uniform"`.
- Number of clusters. Paper: up to one per client. Here: at most `max_clusters`. Option: `max_clusters`.

Communication per participant and round: two models down, two updates up; when it is new, one model down and its first move up.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax import keys
from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.mix import usable
from cfljax.kernels.unite import unite
from cfljax.lazy import jnp
from cfljax.local.averages import add_lengths, averages
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from, train_and_mix
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.round.common import first_model, traffic, with_exchange
from cfljax.round.config import AverageConfig
from cfljax.round.pretrain import in_chunks, pretrain, solver_before
from cfljax.round.similarity import brief, compared_size, similarity, train_and_compare
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, LocalStep, Method, Model

PAPER = "Zeng et al. 2023"


@dataclasses.dataclass(frozen=True)
class Config(AverageConfig):
    """Options of StoCFL."""

    trains_once = False

    max_clusters: int = option(16, "the most clusters; who finds no room joins the most similar one", low=1)
    tau: float = option(
        0.3, "clusters whose mean first moves have at least this cosine become one", low=-1.0, high=1.0, traced=True
    )
    lam: float = option(0.05, "strength of the pull of cluster models to the global one", low=0.0, traced=True)
    pretrain_epochs: int = option(1, "local epochs of the first move", low=1)
    similarity: str = similarity(again=False, default="sketch")

    @property
    def no_feedback(self) -> str:
        """What is dropped of one of them is not what the other lacks."""
        return "it sends two updates a round"

    def releases(self, rounds: int) -> tuple[int, int]:
        """A participant is in two sums a round: of its cluster and of all."""
        return 2 * rounds, 0


class State(NamedTuple):
    """The clusters, and what new clients are compared with."""

    models: Array
    """f32[K, d]."""
    w: Array
    """f32[1, d] the global model."""
    anchor: Array
    """f32[1, d]: w_0."""
    moves: Array
    """f32[K, m]: the sum of the members' ψ, or of sketches of them."""
    members: Array
    """i32[K]: how many clients have joined each cluster; 0: the place is free."""
    labels: Array
    """i32[C]; −1: has not taken part yet."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """StoCFL: clusters whose first moves are alike become one, near a global model."""
    k, how = config.max_clusters, config.similarity
    pulling = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["lam"]))
    before = solver_before(solver, config.pretrain_epochs)

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        w = first_model(key, model)[None]
        moves, nobody = jnp.zeros((k, compared_size(model.size, how))), jnp.zeros(k, jnp.int32)
        return State(jnp.tile(w, (k, 1)), w, w, moves, nobody, jnp.full(federation.clients, -1, jnp.int32))

    def first_moves(key: Array, state: State, federation: Federation, cohort: Cohort, new: Array, hyper: Hyper) -> Array:
        """f32[S, m]: ψ of the participants where `new` bool[S]; zero elsewhere, and where it is not finite."""
        jobs = Jobs(cohort.ids, new, jnp.ones(new.shape), state.anchor, jnp.zeros_like(cohort.ids))
        nothing = Mixing(jnp.zeros((1, new.shape[0])), state.anchor)
        psi = train_and_compare(how, before, keys.fold(key, "pretrain"), federation, jobs, hyper, nothing)[1]
        return jnp.where((new & usable(psi))[:, None], psi, 0.0)

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        new = cohort.mask & (state.labels[cohort.ids] < 0)
        psi = first_moves(key, state, federation, cohort, new, hyper)
        state, crowded = placed(state, federation, cohort, psi, new, hyper["tau"])
        which, everyone = jnp.maximum(state.labels[cohort.ids], 0), jnp.zeros_like(cohort.ids)
        of_all = Mixing(averages(solver, federation, cohort, everyone, 1, config.average, hyper), state.w)
        whole = train_and_mix(solver, key, federation, jobs_from(cohort, state.w, everyone), hyper, of_all)
        inside = Mixing(averages(pulling, federation, cohort, which, k, config.average, hyper), state.models)
        jobs = jobs_from(cohort, state.models, which, anchor=state.w, anchor_of=everyone)
        beside = solver.rule(key, hyper, 1.0)  # noise of its own: the same batches, but another sum
        trained = train_and_mix(pulling, key, federation, jobs, hyper, inside, rule=beside)
        after, sent = trained.mixed.new, add_lengths(traffic(cohort, 2, 2), cohort, config.average)
        sent = with_exchange(sent, jnp.sum(new, dtype=jnp.int32))
        info = report_trained(federation, cohort, trained, which, after - state.models, sent, without_room=crowded)
        either = cohort.mask & ~(trained.kept.finite & whole.kept.finite)
        return state._replace(models=after, w=whole.mixed.new), info._replace(nonfinite=jnp.sum(either, dtype=jnp.int32))

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        means = mean_moves(state)

        def nearest(ids: Array, mask: Array) -> Array:
            psi = brief(pretrain(before, keys.root(0), federation, hyper, state.anchor[0], ids, mask), how)
            cosines = jnp.where(state.members > 0, cosine_matrix(psi, means), -jnp.inf)
            return jnp.where(jnp.max(cosines, axis=1) >= hyper["tau"], jnp.argmax(cosines, axis=1), k)

        found = in_chunks(nearest, federation.trains & (state.labels < 0))
        return jnp.where(state.labels >= 0, state.labels, jnp.where(found >= 0, found, k))

    def models(state: State) -> tuple[Array, Array]:
        return jnp.concatenate([state.models, state.w]), state.labels

    def also(state: State) -> dict[str, tuple[Array, Array]]:
        return {"global": (state.w, jnp.zeros_like(state.labels))}

    return Method(init, round, models, score=score, also=also)


def mean_moves(state: State) -> Array:
    """f32[K, m]: the mean ψ of each cluster; zero for a free place."""
    return state.moves / jnp.maximum(state.members, 1)[:, None]


def placed(state: State, federation: Federation, cohort: Cohort, psi: Array, new: Array, tau: Array) -> tuple[State, Array]:
    """The state after the new participants (`new` bool[S]) have become clusters of their own and similar clusters one; and i32[]
    how many of them found no room. Nodes of the comparison are the K clusters, then the participants by identity."""
    k, clients = state.models.shape[0], state.labels.shape[0]
    order = jnp.argsort(jnp.where(new, federation.uid[cohort.ids], jnp.iinfo(jnp.int32).max), stable=True)
    present = jnp.concatenate([state.members > 0, new[order]])
    similar = cosine_matrix(jnp.concatenate([mean_moves(state), psi[order]]), mask=present)
    size = jnp.concatenate([state.members, new[order].astype(jnp.int32)])
    root, kept = unite(similar, tau, size, present, k)
    place, crowded = places(root, present, similar, k)
    into = jnp.where(present, place, k)  # beyond the last place: dropped
    old = jnp.zeros(k, jnp.int32).at[into[:k]].add(state.members, mode="drop")
    models = jnp.where((old > 0)[:, None], state.models[jnp.minimum(kept[:k], k - 1)], state.w)  # a new cluster begins at ω
    moves = jnp.zeros_like(state.moves).at[into].add(jnp.concatenate([state.moves, psi[order]]), mode="drop")
    members = jnp.zeros_like(state.members).at[into].add(size, mode="drop")
    labels = jnp.where(state.labels >= 0, place[jnp.maximum(state.labels, 0)], -1)
    joined = jnp.where(new[order], cohort.ids[order], clients)
    labels = labels.at[joined].set(place[k:], mode="drop")
    return state._replace(models=models, moves=moves, members=members, labels=labels), crowded


def places(root: Array, present: Array, similar: Array, clusters: int) -> tuple[Array, Array]:
    """(i32[n] the place of each present node among K `clusters`, i32[] the nodes for which there is no room). A union has the
    place of its lowest cluster, or the next free one; without room each of its nodes goes to the place of the most similar node."""
    nodes = jnp.arange(root.shape[0], dtype=jnp.int32)
    head = present & (root == nodes)
    free = ~head[:clusters]
    rank = jnp.cumsum(head & (nodes >= clusters)) - 1
    ranked = jnp.argsort(~free, stable=True).astype(jnp.int32)
    there = jnp.where(rank < jnp.sum(free), ranked[jnp.minimum(rank, clusters - 1)], -1)
    place = jnp.where(nodes < clusters, nodes, there)[root]
    nearest = jnp.argmax(jnp.where(present & (place >= 0), similar, -jnp.inf), axis=1)
    return jnp.where(place >= 0, place, place[nearest]), jnp.sum(present & (place < 0), dtype=jnp.int32)


stocfl = Entry(Config, make)
