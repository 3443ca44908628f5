"""FedAvg (McMahan et al. 2017): one global model, averaged over the participants of each round."""

from __future__ import annotations

import dataclasses

from cfljax.round.about import About, Reading
from cfljax.round.recipes import AVERAGES, Clustered, option

ABOUT = About(
    title="FedAvg",
    family="global",
    authors="McMahan et al.",
    year=2017,
    paper="Communication-efficient learning of deep networks from decentralized data",
    venue="AISTATS",
    link="https://arxiv.org/abs/1602.05629",
)
READINGS = (
    Reading(
        "Weights",
        paper="n_i over the samples of all clients",
        here="over the samples of the round's participants",
        option="average",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedAvg(Clustered):
    """FedAvg: one global model for all clients.

    In a round every participant trains the global model f32[d] on its own samples, and the model
    becomes the mean of what they send, weighted by `average`: "samples" as in the paper, "uniform",
    or "nova", which first divides each update by its number of steps (FedNova). Other methods
    derive from this class: alone it is one cluster, f32[1, d].
    """

    publishes_one_sum_per_round = True

    average: str = option("samples", "weights of the participants", choices=AVERAGES)
