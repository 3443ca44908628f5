"""The models and clusters of a method on `Clustered` before the first round, if it has no function
`begin` that makes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Protocol

from cfljax.federation import cohort as cohorts
from cfljax.lazy import jnp
from cfljax.round.common import first_model, first_models
from cfljax.round.state import State

if TYPE_CHECKING:  # reading a spec imports no JAX
    from cfljax.types import Array, Federation, Model


class LabelsAtFirst(Protocol):
    """What can be used of a method's `choice`."""

    def first_labels(self, clients: int) -> Array:
        """As `Choice.first_labels`."""


@dataclasses.dataclass(frozen=True)
class FirstClusters:
    """`clusters` random models. All clients have the first of them; none of them has a cluster yet
    where participants choose one by score. A subclass begins otherwise, and a method has it as its
    attribute `first_clusters`."""

    follows_groups: ClassVar[bool] = False
    """Whether the clusters are the true groups, in each round."""
    grows: ClassVar[bool] = False
    """Whether further clusters come into use in later rounds."""

    def make(
        self, choice: LabelsAtFirst, clusters: int, key: Array, model: Model, federation: Federation
    ) -> State:
        """Return the state before the first round, with models, clusters, and which are in use.

        Args:
            choice: How participants will get their cluster.
            clusters: K.
            key: The key of the run.
            model: The network.
            federation: The clients' data.
        """
        return State(first_models(key, model, clusters), choice.first_labels(federation.clients))


@dataclasses.dataclass(frozen=True)
class OneCluster(FirstClusters):
    """One cluster is in use, of as many equal models as there is room for."""

    joined: bool = True
    """Whether all clients are in it that are there before the first round; False: nobody is."""

    grows = True

    def make(
        self, choice: LabelsAtFirst, clusters: int, key: Array, model: Model, federation: Federation
    ) -> State:
        """Return the first model in all places. Arguments as for `FirstClusters.make`."""
        models = jnp.tile(first_model(key, model), (clusters, 1))
        active = jnp.arange(clusters) == 0
        is_in_it = self.joined & cohorts.present(federation, jnp.int32(0))
        labels = jnp.where(is_in_it, 0, -1).astype(jnp.int32)
        return State(models, labels, active=active)


@dataclasses.dataclass(frozen=True)
class TrueGroups(FirstClusters):
    """The true groups are known, and are the clusters in all rounds; where they change, clients
    go over to their new groups."""

    follows_groups = True

    def make(
        self, choice: LabelsAtFirst, clusters: int, key: Array, model: Model, federation: Federation
    ) -> State:
        """Return the first model for each group. Arguments as for `FirstClusters.make`."""
        models = jnp.tile(first_model(key, model), (federation.groups, 1))
        return State(models, jnp.asarray(federation.group))
