"""StoCFL (Zeng et al. 2023): each client begins as a cluster of its own; clusters whose first moves
are alike become one.

A participant without a cluster first trains from an anchor, the initial model w_0; ψ_i is its
update. Before the round's training, pairs of clusters (of all that have been seen, new ones
included) whose mean ψ have a cosine of at least `tau` are united, the most similar first; the
cosines are those at the start of the round. In the round all participants train twice on the same
batches: the global model ω as in FedAvg, and their cluster's model with a pull λ/2 · ‖ω_k − ω‖² to
the ω that they were sent. A new cluster begins at ω. The accuracy of ω is the diagnostic
`accuracy_global`.

There is room for `max_clusters` clusters: who finds none joins the most similar one, whatever `tau`
says (diagnostic `without_room`). The server keeps the sums of ψ by cluster, of sketches of 4,096
numbers or (`similarity = "exact"`) as they are. A client that was never drawn, a newcomer too,
trains from the anchor when it is scored: it gets the cluster with the most similar mean ψ if that
cosine is at least `tau`, else ω (`train.score = "assigned"` scores the others alone).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.unite import slots, unite
from cfljax.lazy import jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    BesideGlobal,
    Prepared,
    State,
    compared_size,
    option,
    similarity,
    sketch_if,
)
from cfljax.types import Array, Quantity

ABOUT = About(
    title="StoCFL",
    family="clustered",
    authors="Zeng et al.",
    year=2023,
    paper="Stochastic clustered federated learning",
    venue="arXiv",
    link="https://arxiv.org/abs/2303.00897",
    models="2 down, 2 up",
    communication="two models down, two updates up; one more model down and update up when it is "
    "new",
)
READINGS = (
    Reading(
        "First move",
        paper="the gradient of the client's loss at the anchor; its program trains 10 or 20 epochs",
        here="the update of one epoch",
        option="pretrain_epochs",
    ),
    Reading(
        "Global model",
        paper="each participant trains the server's ω; in its program, and so in the published "
        "numbers, the ω of the participant before it",
        here="the server's",
    ),
    Reading(
        "Compared clusters",
        paper="its program compares only clusters of the round's participants, by their mean ψ",
        here="all clusters, by the mean ψ of all members",
    ),
    Reading(
        "Model of merged clusters",
        paper="its program keeps the larger cluster's",
    ),
    Reading(
        "Weights of the means",
        paper="its program's are equal",
        here="by samples",
        option='average = "uniform"',
    ),
    Reading(
        "Number of clusters",
        paper="up to one per client",
        here="at most `max_clusters`",
        option="max_clusters",
    ),
)


class FirstUpdates(NamedTuple):
    """What new clients are compared with."""

    # f32[d]: w_0
    anchor: Array
    # f32[K, m]: the sum of the members' ψ, or of sketches of them
    moves: Array
    # i32[K]: how many clients have joined each cluster; 0: the slot is free
    members: Array

    @property
    def means(self) -> Array:
        """Return f32[K, m]: the mean ψ of each cluster; zero for a free slot."""
        return self.moves / jnp.maximum(self.members, 1)[:, None]


@dataclasses.dataclass(frozen=True)
class StoCFL(FedAvg):
    """StoCFL: clusters with similar first updates merge, and stay near a global model.

    A new participant trains `pretrain_epochs` epochs from the anchor w_0; its update ψ_i, of which
    the server keeps the sums by cluster f32[K, m], makes it a cluster of its own. Clusters whose
    mean ψ have a cosine of at least `tau` are united. Then all participants train the global model
    ω f32[d] as in FedAvg, and their cluster's model with the pull lam/2 · ‖ω_k − ω‖².
    `max_clusters` is K, `average` has the weights of both means, and `similarity` says whether ψ
    are kept whole or as sketches.
    """

    diagnostics = {
        "without_room": Quantity("participants that found no free cluster"),
    }
    choice = Prepared()
    local = BesideGlobal("lam")

    max_clusters: int = option(
        16, "largest number of clusters; beyond it, clients join the most similar one", low=1
    )
    tau: float = option(
        0.3,
        "clusters merge if their mean first updates have at least this cosine",
        low=-1.0,
        high=1.0,
        traced=True,
        search=(0.0, 0.8, "linear"),
    )
    lam: float = option(
        0.05,
        "strength of the pull of cluster models to the global one",
        low=0.0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )
    pretrain_epochs: int = option(1, "local epochs of the first update", low=1)
    similarity: str = similarity(again=False, default="sketch")

    def first(self, ask: Ask, state: State) -> State:
        """Make room for clusters, of which there are none."""
        moves = jnp.zeros((state.clusters, compared_size(state.models.shape[1], self.similarity)))
        return state._replace(
            active=None,
            memory=FirstUpdates(state.models[0], moves, jnp.zeros(state.clusters, jnp.int32)),
        )

    def prepare(self, ask: Ask, state: State) -> State:
        """Let new participants train from the anchor, and unite clusters."""
        new = ask.cohort.mask & (state.labels[ask.cohort.ids] < 0)
        psi = ask.of(new).moves(state.memory.anchor, self.similarity, self.pretrain_epochs)
        state, without_room = assign_new_clients(ask, state, psi, new)
        ask.show(without_room=without_room)
        return state

    def join(self, ask: Ask, state: State) -> Array:
        """Return i32[C]: the cluster of a client that was never drawn, if one is similar enough;
        else −1."""
        means = state.memory.means

        def nearest(moves: Array) -> Array:
            cosines = cosine_matrix(sketch_if(moves, self.similarity), means)
            cosines = jnp.where(state.memory.members > 0, cosines, -jnp.inf)
            is_similar = jnp.max(cosines, axis=1) >= ask.hyper["tau"]
            return jnp.where(is_similar, jnp.argmax(cosines, axis=1), -1)

        everyone = ask.of(ask.federation.trains & (state.labels < 0))
        return everyone.pretrained(state.memory.anchor, nearest, self.pretrain_epochs)


def assign_new_clients(ask: Ask, state: State, psi: Array, new: Array) -> tuple[State, Array]:
    """Return (the state after new participants, `new` bool[S], have become clusters of their own
    and similar clusters one, i32[] how many of them found no room). Nodes of the comparison are the
    K clusters, then the participants by identity."""
    k = state.clusters
    clients = state.labels.shape[0]
    seen = state.memory
    ids = ask.cohort.ids
    tau = ask.hyper["tau"]
    assert state.global_model is not None
    last = jnp.iinfo(jnp.int32).max
    order = jnp.argsort(jnp.where(new, ask.federation.uid[ids], last), stable=True)
    present = jnp.concatenate([seen.members > 0, new[order]])
    similar = cosine_matrix(jnp.concatenate([seen.means, psi[order]]), mask=present)
    size = jnp.concatenate([seen.members, new[order].astype(jnp.int32)])
    root, kept = unite(similar, tau, size, present, k)
    slot, crowded = slots(root, present, similar, k)
    # Nodes that are not there get the index past the last slot, which is dropped
    into = jnp.where(present, slot, k)
    old = jnp.zeros(k, jnp.int32).at[into[:k]].add(seen.members, mode="drop")
    # A new cluster begins at ω
    models = jnp.where(
        (old > 0)[:, None], state.models[jnp.minimum(kept[:k], k - 1)], state.global_model
    )
    all_moves = jnp.concatenate([seen.moves, psi[order]])
    moves = jnp.zeros_like(seen.moves).at[into].add(all_moves, mode="drop")
    members = jnp.zeros_like(seen.members).at[into].add(size, mode="drop")
    labels = jnp.where(state.labels >= 0, slot[jnp.maximum(state.labels, 0)], -1)
    joined = jnp.where(new[order], ids[order], clients)
    labels = labels.at[joined].set(slot[k:], mode="drop")
    memory = FirstUpdates(seen.anchor, moves, members)
    return state._replace(models=models, labels=labels, memory=memory), crowded
