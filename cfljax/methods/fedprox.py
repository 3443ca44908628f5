"""FedProx (Li et al. 2020): FedAvg whose local objective pulls towards the global model by mu/2 ·
‖w − w_start‖².

Readings:
- Draw and weights. Paper: clients drawn by their number of samples, then the plain mean. Here: a
  uniform draw, weights by samples, as in FedAvg. Option: `average = "uniform"` for the weights.
- Partial local work. Paper: part of the method. Here: `train.stragglers`, for every method. Option:
  none.

Communication per participant and round: one model down, one update up.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.recipes import option
from cfljax.types import Hyper, LocalStep

PAPER = "Li et al. 2020"


@dataclasses.dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx: FedAvg with a proximal term in the local objective."""

    one_sum = True

    mu: float = option(1.0, "strength of the pull to the global model", low=0.0, traced=True)

    def step(self, hyper: Hyper) -> LocalStep:
        """SGD with a proximal term."""
        return LocalStep.of(hyper)._replace(mu=hyper["mu"])
