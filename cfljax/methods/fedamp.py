"""FedAMP (Huang et al. 2021): each client has a model w_i and trains it with a pull towards u_i,
its own mixture of all models, in which models near to w_i weigh more.

The mixture is u_i = (1 − Σ_j ξ_ij) w_i + Σ_j ξ_ij w_j over j ≠ i, with ξ_ij = alpha · A'(‖w_i −
w_j‖²), A(x) = 1 − exp(−x / sigma). The client then makes its loss plus lam / (2 alpha) · ‖w − u_i‖²
small. With lam = 0 it is local training.

A newcomer, or a client that has not been drawn yet, is scored with the mean by samples of the
models of all that have trained.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.blocks import squared_distances
from cfljax.lazy import jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import OwnModels, Peers, option
from cfljax.types import Array, Hyper, LocalStep

ABOUT = About(
    title="FedAMP",
    family="personal",
    authors="Huang et al.",
    year=2021,
    paper="Personalized cross-silo federated learning on non-IID data",
    venue="AAAI",
    link="https://arxiv.org/abs/2007.03797",
    communication="u_i down, w_i up",
)
READINGS = (
    Reading(
        "Start of local training",
        paper="any, because only the minimum counts",
        here="at w_i",
    ),
    Reading(
        "Weights that sum to more than 1",
        paper="alpha is small enough",
        here="they are divided by their sum, and w_i itself has weight 0",
    ),
    Reading(
        "Who is mixed",
        paper="all clients; all take part",
        here="the last models of all clients that have trained",
    ),
    Reading(
        "Numbers",
        paper="alpha falls during a run",
        here="constant, with our defaults",
        option=("alpha", "sigma", "lam"),
    ),
    Reading(
        "Attention",
        paper="the above, and a heuristic with cosines (HeurFedAMP)",
        here="the above",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedAMP(Peers):
    """FedAMP: personalized models, each pulled to a mixture of similar models.

    A participant gets u_i = (1 − Σ_j ξ_ij) w_i + Σ_j ξ_ij w_j, a row of f32[S, d], with the
    attention ξ_ij = alpha / sigma · exp(−‖w_i − w_j‖² / sigma), and minimises its loss plus lam /
    (2 alpha) · ‖w − u_i‖² from w_i. The server keeps the last models w_i of all clients, f32[C, d].
    """

    alpha: float = option(
        0.1, "step towards the others' models", above=0.0, traced=True, search=(0.01, 1.0, "log")
    )
    sigma: float = option(
        1.0,
        "squared distance at which attention has fallen to 1/e",
        above=0.0,
        traced=True,
        search=(0.1, 10.0, "log"),
    )
    lam: float = option(
        0.01, "strength of the pull to the mixture, times alpha", low=0.0, traced=True
    )

    def step(self, hyper: Hyper) -> LocalStep:
        """lam / (2 alpha) · ‖w − u_i‖²."""
        return LocalStep.of(hyper)._replace(mu=hyper["lam"] / hyper["alpha"])

    def start(self, state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> tuple[Array, Array]:
        """Return the clients' own models w_i, from which they train, and the mixtures u_i, to which
        they are pulled."""
        weights = attention(state, ids, own, hyper)
        return own, (1.0 - weights.sum(axis=1, keepdims=True)) * own + state.mixed(weights)

    def weights(self, state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> Array:
        """Return f32[S, C]: ξ_ij, and what they leave for w_i."""
        weights = attention(state, ids, own, hyper)
        return weights.at[jnp.arange(ids.shape[0]), ids].add(1.0 - weights.sum(axis=1))


def attention(state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> Array:
    """Return f32[S, C]: ξ_ij of the clients i32[S], divided by their sum where that is above 1."""
    apart = squared_distances(own, state.rows)
    weights = hyper["alpha"] * jnp.exp(-apart / hyper["sigma"]) / hyper["sigma"]
    there = state.drawn[None] & (ids[:, None] != jnp.arange(state.drawn.shape[0])[None])
    weights = jnp.where(there, weights, 0.0)
    return weights / jnp.maximum(weights.sum(axis=1, keepdims=True), 1.0)
