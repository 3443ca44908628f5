"""FedBN (Li et al. 2021): FedAvg of all but the layers of normalisation, which stay with their
client.

What stays are the scales and biases of these layers, and of BatchNorm the running means and
variances. All is trained together on the client's data. A client that has not been drawn yet has
the layers that all begin with.

Readings:
- Layers. Paper: BatchNorm. Here: group and layer normalisation, too. Option: the model; or
  `train.parts` with fedavg.
- Participants. Paper: all clients in each round of its program. Here: the run's. Option:
  `train.participation`.
- Weights of the mean. Paper: equal in its program. Here: by samples. Option: `average = "uniform"`.

Communication per participant and round: the model without these layers down, its update up.

A newcomer, which has never trained, is scored with the global model and the layers of normalisation
that all clients begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg

PAPER = "Li et al. 2021"


@dataclasses.dataclass(frozen=True)
class FedBN(FedAvg):
    """FedBN: a global model, and layers of normalisation for each client."""

    parts, own = (("norm", "client"),), True
