"""FedPer (Arivazhagan et al. 2019): FedAvg of the body; the head, the last layer, stays with its
client.

Both are trained together on the client's data. A client that has not been drawn yet has the head
that all begin with.

Readings:
- Personal layers. Paper: the last ones, in varying number. Here: the last dense layer. Option:
  `train.parts` with fedavg.
- Participants. Paper: all clients in each round. Here: the run's. Option: `train.participation`.
- Weights of the mean. Paper: by samples. Here: the same. Option: `average`.

Communication per participant and round: the body down, its update up.

A newcomer, which has never trained, is scored with the global body and the head that all clients
begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg

PAPER = "Arivazhagan et al. 2019"


@dataclasses.dataclass(frozen=True)
class FedPer(FedAvg):
    """FedPer: a global body, and a head for each client."""

    parts, own = (("head", "client"),), True
