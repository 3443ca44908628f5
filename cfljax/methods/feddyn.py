"""FedDyn (Acar et al. 2021): each client's objective gets a linear term that follows its own
gradient, so that the global model comes to rest where it minimises the mean of all clients'
objectives, however long clients train.

A participant minimises f_i(w) − ⟨h_i, w⟩ + alpha/2 · ‖w − w_t‖² by its local training from the
global model w_t, and sets h_i ← h_i − alpha (w_i − w_t). The server sets h ← h − alpha · (1/C) ·
sum of (w_i − w_t) over the participants, and w ← mean of the w_i − h / alpha. C counts the clients
that train in some round; all h are 0 at first.

But for a constant, the objective is f_i(w) + alpha/2 · ‖w − (w_t + h_i / alpha)‖²: that has a
proximal term and no other. The state holds −h / alpha instead of h: the sum of a client's moves,
and on the server the mean of these sums.

`train.parts`, `train.freeze` and `train.server` are refused.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.about import About, Reading
from cfljax.round.recipes import Controlled, option
from cfljax.types import Array, Hyper, LocalStep

ABOUT = About(
    title="FedDyn",
    family="global",
    authors="Acar et al.",
    year=2021,
    paper="Federated learning based on dynamic regularization",
    venue="ICLR",
    link="https://arxiv.org/abs/2111.04263",
)
READINGS = (
    Reading(
        "The minimum",
        paper="exact, or by some epochs of SGD",
        here="the run's local training",
    ),
    Reading(
        "Weights",
        paper="uniform; its program divides alpha by n_i / mean n",
        here="uniform",
    ),
    Reading(
        "Clipping",
        paper="none; its program clips gradients to norm 10",
        here="none",
    ),
    Reading(
        "Scored model",
        paper="the server's w; its program scores the mean of all clients' last models",
        here="w",
    ),
    Reading(
        "Compression",
        paper="none",
        here="a client subtracts from its h_i what the server received",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedDyn(Controlled):
    """FedDyn: FedAvg whose local objectives are corrected until their minima agree.

    A participant minimises f_i(w) − ⟨h_i, w⟩ + alpha/2 · ‖w − w_t‖² from the global model w_t
    f32[d], then takes alpha times its move from h_i. The server takes alpha / C times the sum of
    the moves from h, and adds −h / alpha to the mean of the local models. `alpha` is the strength
    of both terms. The state has −h_i / alpha, f32[C, d], and −h / alpha, f32[1, d].
    """

    alpha: float = option(
        0.1,
        "strength of the pull to the global model, and of the linear term",
        above=0.0,
        traced=True,
        search=(0.001, 0.01, 0.1),
    )

    def step(self, hyper: Hyper) -> LocalStep:
        """alpha/2 · ‖w − (w_t + h_i / alpha)‖²."""
        return LocalStep.of(hyper)._replace(mu=hyper["alpha"])

    def move(self, models: Array, mean: Array, control: Array, hyper: Hyper) -> Array:
        """Return the mean of the w_i, less h / alpha."""
        return models + mean + control
