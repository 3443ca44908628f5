"""FedEM (Marfoq et al. 2021): K models, and for each client i a mixture π_i of them: its data are taken for draws from K
underlying distributions in its own proportions.

Each round a participant finds which model explains each of its samples, q_ijk ∝ π_ik exp(−ℓ_k(x_ij)) (E-step), takes the mean
over its samples as its mixture, π_ik = mean_j q_ijk, and trains every model on the loss weighted by q (M-step). The server
averages each of the models. A client is scored by the mean of the models' probabilities, weighted by π. Its label is the
model with the largest weight.

All K models of a participant are trained on the same stream of batches. With `clusters = 1` it is FedAvg.

Readings:
- Initial models. Paper: random. Here: independent draws, since equal models would stay equal. Option: none.
- Initial mixtures. Paper: any; its program begins with equal weights. Here: equal weights. Option: none.
- Weights of the mean. Paper: n_i over the samples of all clients; where its program samples clients, the others keep the old
  model in that mean. Here: n_i over those of the round's participants. Option: `average`.
- Loss of a batch. Paper: the sum over samples of q times loss. Here: its mean over the batch, as in its program, so that a
  model that explains little of a client moves little. Option: none.
- Clients not drawn. Paper: all take part. Here: they keep their mixtures, as in its program. Option: none.
- Mixture of a newcomer. Paper: E-steps with fixed models; its program does one at each evaluation, from the mixture before.
  Here: ten, from equal weights. Option: `newcomer_steps`.

Communication per participant and round: K models down, K updates up. The mixture stays with the client.

A newcomer, as any client that has not been drawn yet, gets its mixture by `newcomer_steps` E-steps on its own training
samples from equal weights, with the models as they are. A client without training samples has one model, the one of least
loss on its test samples.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.lazy import jnp
from cfljax.local.averages import AVERAGES
from cfljax.local.solver import Solver
from cfljax.methods.shared.choice import need_clients
from cfljax.methods.shared.common import first_models, traffic
from cfljax.methods.shared.config import MethodConfig
from cfljax.methods.shared.soft import Explained, explain, mixtures_of_all, train_all
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model

PAPER = "Marfoq et al. 2021"


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """Options of FedEM."""

    trains_once = False
    served = "models"
    waits = "each participant sends updates of several models"

    clusters: int = option(3, "number of models", low=1)
    average: str = option("samples", "weights of the participants", choices=AVERAGES)
    newcomer_steps: int = option(10, "E-steps that give a client its mixture if it has not been drawn", low=1)

    @property
    def no_feedback(self) -> str:
        """One update per model is sent."""
        return "it sends an update of each model in a round"

    def releases(self, rounds: int) -> tuple[int, int]:
        """Every participant is in the sums of all models."""
        return rounds * self.clusters, 0


class State(NamedTuple):
    """The models, and the clients' mixtures of them."""

    models: Array
    """f32[K, d]."""
    mixture: Array
    """f32[C, K]: π."""
    drawn: Array
    """bool[C]: has a mixture of its own."""

    @property
    def labels(self) -> Array:
        """i32[C]: the model with the largest weight; −1 before a client's first round."""
        return jnp.where(self.drawn, jnp.argmax(self.mixture, axis=1), -1).astype(jnp.int32)


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FedEM: every client has a mixture of models, found by expectation and maximisation."""
    k = config.clusters

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        need_clients(federation, k, "fedem")
        return {}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        equal = jnp.full((federation.clients, k), 1 / k)
        return State(first_models(key, model, k), equal, jnp.zeros(federation.clients, bool))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        found = explain(solver, federation, cohort, state.models, state.mixture[cohort.ids])
        sent = traffic(cohort, k, k)
        new, info = train_all(solver, key, federation, cohort, state.models, found.q, hyper, config.average, sent)
        return after(state, federation, cohort, new, found), info

    def mixture(state: State, federation: Federation, hyper: Hyper) -> Array:
        return mixtures_of_all(solver, federation, state.models, state.mixture, state.drawn, config.newcomer_steps)

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        return jnp.argmax(mixture(state, federation, hyper), axis=1).astype(jnp.int32)

    return Method(
        init,
        round,
        models=lambda state: (state.models, state.labels),
        setup=setup,
        score=score,
        mixture=mixture,
        extras=lambda state: {"mixture": state.mixture},
    )


def after(state: State, federation: Federation, cohort: Cohort, models: Array, found: Explained) -> State:
    """The state with these models f32[K, d], and with what the participants have found."""
    there = jnp.where(cohort.mask, cohort.ids, federation.clients)
    mixture = state.mixture.at[there].set(found.mixture, mode="drop")
    return State(models, mixture, state.drawn.at[there].set(True, mode="drop"))


fedem = Entry(Config, make)
