"""LG-FedAvg (Liang et al. 2020): FedAvg of the head; the body, which makes the representation,
stays with its client.

Both are trained together on the client's data. A client that has not been drawn yet has the body
that all begin with.

A newcomer, which has never trained, is scored with the global head and the body that all clients
begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES_UNLIKE_PROGRAM, About, Reading

ABOUT = About(
    title="LG-FedAvg",
    family="personal",
    authors="Liang et al.",
    year=2020,
    paper="Think locally, act globally: federated learning with local and global representations",
    venue="arXiv",
    link="https://arxiv.org/abs/2001.01523",
    models="the head down and up",
    communication="the head down, its update up",
)
READINGS = (
    Reading(
        "Start",
        paper="its program first trains whole models by FedAvg",
        here="the initial model",
    ),
    Reading(
        "Global layers",
        paper="the top layers, in varying number",
        here="the last dense layer; others with fedavg and `train.parts`",
        option="train.parts",
    ),
    BY_SAMPLES_UNLIKE_PROGRAM,
    Reading(
        "Scored model",
        paper="its program keeps each client's best model by test accuracy",
        here="the last",
    ),
    Reading(
        "Newcomers",
        paper="the ensemble of all local models",
        here="the global head on the initial body",
    ),
)


@dataclasses.dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """LG-FedAvg: a global head, and a body for each client.

    The rounds are FedAvg's, but the body, all below the last layer, is a row of its client, f32[C,
    n] for n parameters, and is never averaged. Both are trained together. `average` says how heads
    are averaged.
    """

    parts, own = (("body", "client"),), True
