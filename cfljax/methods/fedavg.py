"""FedAvg (McMahan et al. 2017): one global model, averaged over the participants of each round.

Readings:
- Weights. Paper: n_i over the samples of all clients. Here: over the samples of the round's
  participants. Option: `average`.

Communication per participant and round: one model down, one update up.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.recipes import AVERAGES, Clustered, option

PAPER = "McMahan et al. 2017"


@dataclasses.dataclass(frozen=True)
class FedAvg(Clustered):
    """FedAvg: one global model for all clients."""

    one_sum = True

    average: str = option("samples", "weights of the participants", choices=AVERAGES)
