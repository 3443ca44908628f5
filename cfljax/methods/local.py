"""Local training only: every client trains a model of its own, and nothing is communicated. A client that holds no training
data, or has not been drawn yet, is scored with the initial model, which is the same for all clients.

Communication: none.
"""

from __future__ import annotations

import dataclasses

from cfljax.lazy import jnp
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.round.common import Clusters, first_model, keep_own, traffic
from cfljax.round.config import PersonalConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model


@dataclasses.dataclass(frozen=True)
class Config(PersonalConfig):
    """Local training takes no options."""

    sends = False
    waits = "nothing is sent, so nobody waits"

    def releases(self, rounds: int) -> tuple[int, int]:
        """Noised sums: none."""
        return 0, 0


def make(config: Config, model: Model, solver: Solver) -> Method:
    """Local only: every client trains its own model alone."""

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Clusters:
        each = jnp.tile(first_model(key, model), (federation.clients, 1))
        return Clusters(each, jnp.arange(federation.clients, dtype=jnp.int32))

    def round(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Clusters, Info]:
        start = state.models[cohort.ids]
        mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        updates = solver.train(key, federation, jobs_from(cohort, start, mine), hyper)
        mixed = keep_own(cohort, updates.delta, start)
        info = report(federation, cohort, updates, start, mixed.new, mixed, traffic(cohort, 0, 0))
        return state._replace(models=state.models.at[cohort.ids].set(mixed.new)), info

    return Method(init, round, models=lambda state: (state.models, state.labels), chooses=False)


local = Entry(Config, make)
