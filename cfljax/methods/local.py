"""Local training only: every client trains a model of its own, and nothing is communicated. A
client that holds no training data, or has not been drawn yet, is scored with the initial model,
which is the same for all clients.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.about import About
from cfljax.round.recipes import Peers

ABOUT = About(
    title="Local only",
    family="personal",
    models="nothing",
    communication="none",
)


@dataclasses.dataclass(frozen=True)
class Local(Peers):
    """Local only: every client trains its own model alone.

    A participant trains its own model, a row of f32[C, d], on its own samples, as a participant of
    FedAvg trains the global one. Nothing is sent.
    """

    sends = False
