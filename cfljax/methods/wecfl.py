"""WeCFL (Ma et al. 2022), the basis of Fed-CAM: in each round K-means of the clients' trained
weights makes the clusters, and a client counts by its samples.

All clients begin in one cluster, from w_0. A participant trains from its cluster's model. Weighted
K-means of the last layer of the trained weights then makes new clusters, and the model of each
becomes the mean of its members' trained weights.
"""

from __future__ import annotations

import dataclasses

from cfljax import keys
from cfljax.kernels.kmeans import kmeans
from cfljax.kernels.mix import members
from cfljax.lazy import jax, jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    Clustered,
    OneCluster,
    Reassigned,
    State,
    compared_columns,
    option,
)
from cfljax.types import Array

ABOUT = About(
    title="WeCFL",
    family="clustered",
    authors="Ma et al.",
    year=2022,
    paper="On the convergence of clustered federated learning",
    venue="arXiv",
    link="https://arxiv.org/abs/2202.06187",
    communication="one model down, one up. A client that arrives later gets the models of all "
    "clusters once, and begins in the one with the least loss",
)
READINGS = (
    Reading(
        "What is compared",
        paper="a representation of each client",
        here="the kernel of the last dense layer, as in the authors' program",
        option="compare",
    ),
    Reading(
        "Weights of K-means and of the mean",
        paper="by samples; its program counts mini-batches",
        here="by samples",
        option='average = "uniform"',
    ),
    Reading(
        "First models",
        paper="in its program one for all clients",
    ),
    Reading(
        "K-means",
        paper="in its program K-means++ with 10 restarts in each round",
    ),
    Reading(
        "Who is clustered",
        paper="all clients, in each round",
        here="the participants; the others stay in their cluster, and clusters are named so that "
        "most participants stay in theirs",
    ),
)


@dataclasses.dataclass(frozen=True)
class InNewClusters(Reassigned):
    """The participants' trained weights are clustered by K-means. Fields are the options of
    `WeCFL`."""

    clusters: int
    average: str
    compare: str

    def reassign(self, ask: Ask, state: State, trained: Array, which: Array) -> Array:
        """Return i32[S]: the clusters by weighted K-means. A participant whose update is not finite
        stays."""
        points = trained[:, compared_columns(self.compare, ask.solver, "method.wecfl")]
        mask = ask.cohort.mask
        uid = jnp.asarray(ask.federation.uid)[ask.cohort.ids]
        weight = ask.sizes if self.average == "samples" else None
        key = keys.fold(ask.key, "wecfl")
        found = kmeans(key, points, self.clusters, mask, uid, weight=weight).labels
        new, old = (
            members(labels, self.clusters, mask).astype(jnp.int32) for labels in (found, which)
        )
        return jnp.where(found >= 0, match(new @ old.T)[found], which)


@dataclasses.dataclass(frozen=True)
class WeCFL(Clustered):
    """WeCFL: weighted K-means of the clients' trained weights in each round.

    A participant trains from its cluster's model, a row of f32[K, d]. K-means++ of the
    participants' trained weights, f32[S, p] by `compare`, with their samples as weights
    (`average`), then makes `clusters` new clusters, and each model becomes the mean of its new
    members' trained weights.
    """

    first_clusters = OneCluster()

    clusters: int = option(4, "number of clusters", low=1, search=(2, 3, 4, 6))
    average: str = option(
        "samples",
        "weights of the clients in K-means and in the mean",
        choices=("samples", "uniform"),
    )
    compare: str = option(
        "last", 'kernel of the last dense layer, or "head", "whole", or a prefix of parameter paths'
    )

    @property
    def merging(self) -> InNewClusters:
        """Average in clusters of the trained weights."""
        return InNewClusters(self.clusters, self.average, self.compare)


def match(common: Array) -> Array:
    """Return i32[K]: the old cluster whose name each new one takes. The pair with the most common
    members i32[K, K] comes first."""

    def take(_: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        left, names = at
        new, old = jnp.divmod(jnp.argmax(left), len(common))
        return left.at[new].set(-1).at[:, old].set(-1), names.at[new].set(old)

    return jax.lax.fori_loop(0, len(common), take, (common, jnp.zeros(len(common), jnp.int32)))[1]
