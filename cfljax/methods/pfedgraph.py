"""pFedGraph (Ye et al. 2023): each client trains from its own mixture of all models, in which
models of similar clients and of clients with many samples weigh more.

The weights x of client i minimise lam · ‖x − p‖² − ⟨x, c⟩ on the simplex: p are the shares of
samples, c_j the cosine between the moves of the models of i and j since w_0. The minimum is the
projection of p + c / (2 lam). With a large lam it is FedAvg; with a small one a client keeps to
itself.

A newcomer, or a client that has not been drawn yet, is scored with the mean by samples of the
models of all that have trained, which is the mixture for a model that has not moved.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.simplex import project_simplex
from cfljax.lazy import jax, jnp
from cfljax.round.about import About, Reading
from cfljax.round.recipes import OwnModels, Peers, option
from cfljax.types import Array, Hyper

ABOUT = About(
    title="pFedGraph",
    family="personal",
    authors="Ye et al.",
    year=2023,
    paper="Personalized federated learning with inferred collaboration graphs",
    venue="ICML",
    link="https://proceedings.mlr.press/v202/ye23b.html",
    communication="its mixture down, its model up",
)
READINGS = (
    Reading(
        "Local loss",
        paper="less a small multiple of the cosine with the mixture; its program adds it (0.01), "
        "which pushes away",
        here="without this term",
    ),
    Reading(
        "Cosines",
        paper="as computed; its program counts those above 0.9 as 1",
        here="as computed",
    ),
    Reading(
        "Who is mixed",
        paper="the round's participants",
        here="the last models of all clients that have trained",
    ),
    Reading(
        "Compared models",
        paper="how far they have moved",
        here="from w_0, all parameters",
    ),
    Reading(
        "Scored model",
        paper="the model after local training",
        here="the same, not the following mixture",
    ),
)


@dataclasses.dataclass(frozen=True)
class PFedGraph(Peers):
    """pFedGraph: each client trains from its own mixture, by similarity and samples.

    A participant starts at its own mixture Σ_j x_j w_j of the clients' last models f32[C, d]. The
    weights x f32[C] minimise lam · ‖x − p‖² − ⟨x, c⟩ on the simplex, where p are the shares of
    samples and c the cosines of the models' moves since w_0. `lam` weighs the former against the
    latter.
    """

    # Its model, and how far that has moved
    vectors_kept = 2

    lam: float = option(
        0.8,
        "weight of the shares of samples against similarity",
        above=0.0,
        traced=True,
        search=(0.1, 2.0, "log"),
    )

    def start(self, state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> tuple[Array, None]:
        """Return the mixtures, from which clients train; before anyone has trained, their own
        models."""
        mixed = state.mixed(self.weights(state, ids, own, hyper))
        return jnp.where(jnp.any(state.drawn), mixed, own), None

    def weights(self, state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> Array:
        """Return f32[S, C]: the projections of p + c / (2 lam) on the simplex."""
        cosines = cosine_matrix(own - state.first, state.rows - state.first)
        wanted = state.shares + cosines / (2 * hyper["lam"])
        return jax.vmap(project_simplex, in_axes=(0, None))(wanted, state.drawn)
