"""FedPer (Arivazhagan et al. 2019): FedAvg of the body; the head, the last layer, stays with its
client.

Both are trained together on the client's data. A client that has not been drawn yet has the head
that all begin with.

A newcomer, which has never trained, is scored with the global body and the head that all clients
begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import head_rate
from cfljax.types import Hyper, LocalStep

ABOUT = About(
    title="FedPer",
    family="personal",
    authors="Arivazhagan et al.",
    year=2019,
    paper="Federated learning with personalization layers",
    venue="arXiv",
    link="https://arxiv.org/abs/1912.00818",
    models="the body down and up",
    communication="the body down, its update up",
)
READINGS = (
    Reading(
        "Personal layers",
        paper="the last ones, in varying number",
        here="the last dense layer; others with fedavg and `train.parts`",
        option="train.parts",
    ),
    Reading(
        "Participants",
        paper="all clients in each round",
        here="the run's",
        option="train.participation",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class FedPer(FedAvg):
    """FedPer: a global body, and a head for each client.

    The rounds are FedAvg's, but the head, the last layer, is a row of its client, f32[C, n] for n
    parameters, and is never averaged. Body and head are trained together. `average` says how bodies
    are averaged, and `head_lr` is the learning rate of heads.
    """

    parts, own = (("head", "client"),), True

    head_lr: float | None = head_rate()

    def step(self, hyper: Hyper) -> LocalStep:
        """Move the head at `head_lr`, if it is given."""
        return LocalStep.with_head(hyper)
