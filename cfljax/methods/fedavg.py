"""FedAvg (McMahan et al. 2017): one global model, averaged over the participants of each round.

Readings:
- Weights. Paper: n_i over the samples of all clients. Here: n_i over those of the round's participants. Option: `average`.

Communication per participant and round: one model down, one update up.
"""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jnp
from cfljax.local.averages import AVERAGES
from cfljax.local.solver import Solver
from cfljax.methods.shared.common import Clusters, first_model, traffic, train_clusters
from cfljax.methods.shared.config import MethodConfig
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model

PAPER = "McMahan et al. 2017"


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """Options of FedAvg."""

    averaged = ("models",)
    waits = ""

    average: str = option("samples", "weights of the participants", choices=AVERAGES)


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FedAvg: one global model for all clients."""

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Clusters:
        return Clusters(first_model(key, model)[None], jnp.zeros(federation.clients, jnp.int32))

    def round(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Clusters, Info]:
        everyone = jnp.zeros_like(cohort.ids)
        models, info = train_clusters(
            solver, key, federation, cohort, state.models, everyone, hyper, config.average, traffic(cohort)
        )
        return state._replace(models=models), info

    return Method(init, round, models=lambda state: (state.models, state.labels))


fedavg = Entry(Config, make)
