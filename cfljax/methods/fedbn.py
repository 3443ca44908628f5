"""FedBN (Li et al. 2021): FedAvg of all but the layers of normalisation, which stay with their
client.

What stays are the scales and biases of these layers, and of BatchNorm the running means and
variances. All is trained together on the client's data. A client that has not been drawn yet has
the layers that all begin with.

A newcomer, which has never trained, is scored with the global model and the layers of normalisation
that all clients begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import About, Reading

ABOUT = About(
    title="FedBN",
    family="personal",
    authors="Li et al.",
    year=2021,
    paper="FedBN: federated learning on non-IID features via local batch normalization",
    venue="ICLR",
    link="https://arxiv.org/abs/2102.07623",
    models="all but the layers of normalisation down and up",
    communication="the model without these layers down, its update up",
)
READINGS = (
    Reading(
        "Layers",
        paper="BatchNorm",
        here="group and layer normalisation, too, as the model has them; other layers stay with "
        "fedavg and `train.parts`",
        option="train.parts",
    ),
    Reading(
        "Participants",
        paper="all clients in each round of its program",
        here="the run's",
        option="train.participation",
    ),
    Reading(
        "Weights of the mean",
        paper="equal in its program",
        here="by samples",
        option='average = "uniform"',
    ),
)


@dataclasses.dataclass(frozen=True)
class FedBN(FedAvg):
    """FedBN: a global model, and layers of normalisation for each client.

    The rounds are FedAvg's, but scales, biases and statistics of the layers of normalisation are a
    row of their client, f32[C, n] for n parameters, and are never averaged. `average` says how all
    else is averaged.
    """

    parts, own = (("norm", "client"),), True
