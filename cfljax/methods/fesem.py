"""FeSEM (multi-centre federated learning, Xie et al. 2020), as its authors' program has it. All K
centres are w_0 at first, and clients are in random clusters. A participant trains from the centre
of its cluster, and the centre becomes the mean of its members' trained weights. Before each later
round one step of K-means (Lloyd) on the last layer of the clients' trained weights makes the
clusters: each client joins the nearest mean of the step before, then the means are computed again.
If a cluster has lost its last member, K-means restarts in the next round: at K random clients,
which are the same ones in a run, with five steps.

`fesem_flexcfl` is the method by this name that FedGroup's paper compares with.

A newcomer has no weights to compare: it takes the centre, of those in use, with the least loss on
its labelled samples.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.kernels.blocks import combine, squared_distances
from cfljax.kernels.choose import nearest
from cfljax.kernels.mix import members, usable
from cfljax.lazy import jax, jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    AVERAGES,
    Ask,
    ByServer,
    ChoosingMethod,
    Clustered,
    RoundResult,
    State,
    compared_columns,
    first_model,
    option,
)
from cfljax.types import Array

ABOUT = About(
    title="FeSEM",
    family="clustered",
    authors="Xie et al.",
    year=2020,
    paper="Multi-center federated learning",
    venue="arXiv",
    link="https://arxiv.org/abs/2005.01026",
)
READINGS = (
    Reading(
        "First memberships",
        paper="not said",
        here="K-means of random points in [−0.01, 0.01], as in the program, which also uses the "
        "means of these points in the first step",
    ),
    Reading(
        "What is compared",
        paper="whole models",
        here="the kernel of the last dense layer, as in the program",
        option="compare",
    ),
    Reading(
        "Who is clustered",
        paper="all clients; in the program all train in each round",
        here="clients that have trained; the others stay in their first cluster",
    ),
    Reading(
        "Clusters of one client",
        paper="trained",
        here="the same; the program leaves them unchanged",
    ),
    Reading(
        "Weights of the mean",
        paper="uniform",
        option='average = "samples"',
    ),
)

# Steps of K-means where it begins
FIRST_STEPS = 5
ALL = slice(None)
# The random points of the first memberships are between −SMALL and SMALL
SMALL = 0.01


class Weights(NamedTuple):
    """What the server knows of the clients' weights."""

    # f32[C, p]: what is compared of W_i; not a number before a client has trained
    own: Array
    # f32[K, p]: the means of K-means; not a number for an empty cluster
    means: Array
    # u32[C]: K-means begins at the clients with the smallest of these
    order: Array


@dataclasses.dataclass(frozen=True)
class Centres(Clustered):
    """A method whose server keeps the last weights W_i of each client, and compares them with K
    centres."""

    choice = ByServer()
    compares = True
    # W_i
    vectors_kept = 1

    clusters: int = option(4, "number of centres", low=1, search=(2, 3, 4, 6))
    average: str = option("uniform", "weights of the members", choices=AVERAGES)

    def with_trained(
        self,
        own: Array,
        ask: Ask,
        before: State,
        done: RoundResult,
        columns: np.ndarray | slice = ALL,
    ) -> Array:
        """Return f32[C, p]: the weights `own`, in which the participants that have trained have
        their new ones, of a model's vector these `columns`."""
        new = (before.models[done.which] + done.moves)[:, columns]
        return ask.cohort.write(own, new, done.finite)


class ByKMeans(ByServer):
    """Participants have the cluster that the step of K-means before the round has found."""

    def choose(self, method: ChoosingMethod, ask: Ask, state: State) -> Array:
        """Return i32[S]: the cluster of each participant."""
        return state.labels[ask.cohort.ids]


@dataclasses.dataclass(frozen=True)
class FeSEM(Centres):
    """FeSEM: K-means of the clients' last weights, one step a round.

    Before a round, one step of K-means (Lloyd) moves the clusters: each client whose weights W_i
    are known joins the nearest of the means f32[K, p], which then become the means of their
    members' W_i, f32[C, p]. A participant trains from the centre f32[d] of its cluster, and the
    centre becomes the mean of its members' models by `average`. `clusters` is K, and `compare` says
    which p of the d weights are compared.
    """

    choice = ByKMeans()

    compare: str = option(
        "last", 'kernel of the last dense layer, or "head", "whole", or a prefix of parameter paths'
    )

    def first(self, ask: Ask, state: State) -> State:
        """Make random clusters of equal centres: K-means of a random point for each client that
        trains."""
        federation = ask.federation
        k = state.clusters
        w = first_model(ask.key, ask.solver.model)
        size = w[self.compared(ask)].size
        point_keys = keys.fold_each(ask.key, "point", federation.uid)
        points = jax.vmap(lambda key: SMALL * keys.uniform(key, size))(point_keys)
        points = jnp.where(federation.trains[:, None], points, jnp.nan)
        order = keys.scores(ask.key, "order", federation.uid)
        memory = Weights(own=points, means=jnp.full((k, size), jnp.nan), order=order)
        begun = self.prepare(ask, state._replace(models=jnp.tile(w, (k, 1)), memory=memory))
        # The points were only for the clusters: no client's weights are known yet
        unknown = jnp.full_like(points, jnp.nan)
        return begun._replace(memory=begun.memory._replace(own=unknown))

    def prepare(self, ask: Ask, state: State) -> State:
        """Do one step of K-means on the weights that there are, or, if a cluster is empty, the
        first steps."""
        own, means, order = state.memory
        k = state.clusters
        known = usable(own)
        empty = ~usable(means) if ask.active is None else ~usable(means) & ask.active
        # K-means begins at the known clients that come first in a random order
        first = jnp.lexsort((order, ~known))[jnp.minimum(jnp.arange(k), known.size - 1)]

        def step(_: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            labels, means = at
            labels = jnp.where(known, nearest(own, means, ask.active), labels)
            member = members(labels, k, known)
            count = member.sum(axis=1, keepdims=True)
            means = combine(member / jnp.maximum(count, 1), own, known.astype(jnp.float32))
            return labels, jnp.where(count > 0, means, jnp.nan)

        restarts = empty.any()
        begin = (state.labels, jnp.where(restarts, own[first], means))
        labels, new = jax.lax.fori_loop(0, jnp.where(restarts, FIRST_STEPS, 1), step, begin)
        # Before any weights are known there is nothing to average
        memory = state.memory._replace(means=jnp.where(known.any(), new, means))
        return state._replace(labels=labels, memory=memory)

    def score(self, ask: Ask, state: State) -> Array:
        """Return f32[K, S]: how far each participant's weights are from the centres."""
        return squared_distances(state.memory.own[ask.cohort.ids], state.memory.means).T

    def remember(self, ask: Ask, before: State, after: State, done: RoundResult) -> Weights:
        """Return the weights of those that have trained."""
        weights: Weights = before.memory
        own = self.with_trained(weights.own, ask, before, done, self.compared(ask))
        return weights._replace(own=own)

    def compared(self, ask: Ask) -> np.ndarray | slice:
        """Return the positions of the compared weights in a model's vector."""
        return compared_columns(self.compare, ask.solver, "method.fesem")
