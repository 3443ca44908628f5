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
    """Local only: every client trains its own model alone."""

    sends = False
