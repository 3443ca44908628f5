"""Oracle: FedAvg inside each of the true groups, which are taken as known. It shows what the best clustering could reach.
Where the groups change (`data.drift`), its clients go over to their new groups at once.

Communication per participant and round: one model down, one update up.
"""

from __future__ import annotations

import numpy as np

from cfljax.lazy import jnp
from cfljax.local.solver import Solver
from cfljax.methods import fedavg
from cfljax.methods.shared.common import Clusters, first_model, need_groups, traffic, train_clusters
from cfljax.registry import Entry
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model


def make(config: fedavg.Config, model: Model, solver: Solver) -> Method:
    """Oracle: FedAvg inside each true group."""

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        need_groups('method "oracle"', federation)
        return {}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Clusters:
        start = first_model(key, model)
        return Clusters(jnp.tile(start, (federation.groups, 1)), jnp.asarray(federation.group))

    def round(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Clusters, Info]:
        which = jnp.maximum(state.labels[cohort.ids], 0)  # a masked dummy has no group
        models, info = train_clusters(solver, key, federation, cohort, state.models, which, hyper, config.average, traffic(cohort))
        return state._replace(models=models), info

    def follow(state: Clusters, federation: Federation) -> Clusters:
        return state._replace(labels=jnp.asarray(federation.group))

    return Method(init, round, lambda state: (state.models, state.labels), setup=setup, chooses=False, follow=follow)


oracle = Entry(fedavg.Config, make)
