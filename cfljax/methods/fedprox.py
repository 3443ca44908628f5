"""FedProx (Li et al. 2020): FedAvg whose local objective pulls towards the global model by mu/2 ·
‖w − w_start‖².
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About, Reading
from cfljax.round.recipes import option
from cfljax.types import Hyper, LocalStep

ABOUT = About(
    title="FedProx",
    family="global",
    authors="Li et al.",
    year=2020,
    paper="Federated optimization in heterogeneous networks",
    venue="MLSys",
    link="https://arxiv.org/abs/1812.06127",
)
READINGS = (
    Reading(
        "Draw and weights",
        paper="clients drawn by their number of samples, then the plain mean",
        here="a uniform draw, weights by samples, as in FedAvg",
        option='average = "uniform"',
    ),
    Reading(
        "Partial local work",
        paper="part of the method",
        here="`train.stragglers`, for every method",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx: FedAvg with a proximal term in the local objective.

    A participant minimises f_i(w) + mu/2 · ‖w − w_start‖² from the global model w_start f32[d]; the
    rest of a round is FedAvg's. `mu` is the strength of the pull (0: FedAvg), `average` the
    weights.
    """

    publishes_one_sum_per_round = True

    mu: float = option(
        1.0,
        "strength of the pull to the global model",
        low=0.0,
        traced=True,
        search=(0.001, 0.01, 0.1, 1.0),
    )

    def step(self, hyper: Hyper) -> LocalStep:
        """Return the numbers of a step of SGD, with the pull `mu` to the global model."""
        return LocalStep.of(hyper)._replace(mu=hyper["mu"])
