"""FedAMP (Huang et al. 2021): each client has a model w_i and trains it with a pull towards u_i, its own mixture of all models, in
which models near to w_i weigh more.

The mixture is u_i = (1 − Σ_j ξ_ij) w_i + Σ_j ξ_ij w_j over j ≠ i, with ξ_ij = alpha · A'(‖w_i − w_j‖²), A(x) = 1 − exp(−x / sigma).
The client then makes its loss plus lam / (2 alpha) · ‖w − u_i‖² small. With lam = 0 it is local training.

Readings:
- Where local training begins. Paper: the minimum is what counts, its solver starts anywhere. Here: at w_i. Option: none.
- Weights of the others that sum to more than 1. Paper: alpha is small enough. Here: they are divided by their sum, and w_i itself
  has weight 0. Option: none.
- Who is mixed. Paper: all clients, which all take part. Here: the last models of all that have trained. Option: none.
- Numbers. Paper: alpha falls in the course of a run. Here: constant, with our defaults. Option: `alpha`, `sigma`, `lam`.
- Attention. Paper: the above, and a heuristic with cosines (HeurFedAMP). Here: the above. Option: none.

Communication per participant and round: u_i down, w_i up.

A newcomer, or a client that has not been drawn yet, is scored with the mean by samples of the models of all that have trained.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.blocks import squared_distances
from cfljax.lazy import jnp
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.round.others import MixtureConfig, State, mixed_by, mixture_method
from cfljax.types import Array, Cohort, Hyper, LocalStep, Method, Model

PAPER = "Huang et al. 2021"


@dataclasses.dataclass(frozen=True)
class Config(MixtureConfig):
    """Options of FedAMP."""

    alpha: float = option(0.1, "step towards the others' models", above=0.0, traced=True)
    sigma: float = option(1.0, "squared distance at which attention has fallen to 1/e", above=0.0, traced=True)
    lam: float = option(0.01, "strength of the pull to the mixture, times alpha", low=0.0, traced=True)


def make(config: Config, model: Model, solver: Solver) -> Method[State]:
    """FedAMP: personal models, each pulled to a mixture of those near to it."""
    pulling = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["lam"] / hyper["alpha"]))

    def others(state: State, ids: Array, own: Array, hyper: Hyper) -> Array:
        weights = attention(own, state.own, hyper["alpha"], hyper["sigma"])
        there = state.drawn[None] & (ids[:, None] != jnp.arange(state.drawn.shape[0])[None])
        weights = jnp.where(there, weights, 0.0)
        return weights / jnp.maximum(weights.sum(axis=1, keepdims=True), 1.0)

    def start(state: State, cohort: Cohort, own: Array, hyper: Hyper) -> tuple[Array, Array]:
        weights = others(state, cohort.ids, own, hyper)
        rest = 1.0 - weights.sum(axis=1, keepdims=True)
        return own, rest * own + mixed_by(weights, state)

    def weights(state: State, ids: Array, own: Array, hyper: Hyper) -> Array:
        of_others = others(state, ids, own, hyper)
        return of_others.at[jnp.arange(ids.shape[0]), ids].add(1.0 - of_others.sum(axis=1))

    return mixture_method(model, pulling, start, weights)


def attention(own: Array, models: Array, alpha: Array, sigma: Array) -> Array:
    """f32[S, C]: alpha · A' of the squared distances between the models own f32[S, d] and f32[C, d]."""
    return alpha * jnp.exp(-squared_distances(own, models) / sigma) / sigma


fedamp = Entry(Config, make)
