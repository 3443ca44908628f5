"""CFL-MGD (clustered federated learning by momentum gradient descent, Zhao et al. 2023): IFCA's
choice by loss, and a momentum buffer u_p beside each of the P models χ_p (P is `clusters`).

`aggregate = "model"` (option II, the paper's Table 2): from (χ_p, u_p) each member runs its local
steps u ← βu + ∇φ(χ), χ ← χ − ηu (eq. 4); χ_p and u_p become the members' means (eq. 6).
`"gradient"` (option I): one gradient each, u_i = β u_p + g_i, χ_p ← χ_p − η/m Σ_members u_i, u_p
the mean of the members' u_i (eq. 5). `beta` is the momentum; `train.momentum` must be 0, and the
optimiser "sgd".
"""

from __future__ import annotations

import dataclasses

from cfljax.round.about import About, Reading
from cfljax.round.recipes import ByScore, Clustered, FromBuffer, OneGradient, option

ABOUT = About(
    title="CFL-MGD",
    family="clustered",
    authors="Zhao et al.",
    year=2023,
    paper="Clustered federated learning based on momentum gradient descent for heterogeneous data",
    venue="Electronics",
    link="https://doi.org/10.3390/electronics12091972",
    models="K + 1 down, 2 up",
    communication="P models and one u_p down; u_i (option I), or χ_i and u_i (option II) up",
)
READINGS = (
    Reading(
        "Momentum",
        paper="0.9 for CIFAR-10; nothing for MNIST",
        here="0.9",
        option="beta",
    ),
    Reading(
        "Order of a local step",
        paper="buffer first in eq. 4, model first in Algorithm 1",
        here="eq. 4",
    ),
    Reading(
        "Whose buffer",
        paper="u_p for all members (Algorithm 1); read literally, a client that changes its "
        "cluster brings the buffer that it was last sent",
        here="u_p",
    ),
    Reading(
        "The divisor m of option I",
        paper="all clients",
        here="the round's participants",
    ),
    Reading(
        "Data of choice and gradient",
        paper="all of a client's data",
        here="the same, or the first mini-batch of `train.batch`",
        option='estimate = "batch"',
    ),
    Reading(
        "Fresh data",
        paper="2T disjoint parts of the data for T rounds, for the proof",
        here="all data in each round",
    ),
)


@dataclasses.dataclass(frozen=True)
class CFLMGD(Clustered):
    """CFL-MGD: IFCA with a momentum buffer per cluster.

    A participant gets the P models f32[P, d] and joins the one with the least loss on the data of
    `estimate`. `aggregate = "model"`: it runs eq. 4 from χ_p and u_p, and eq. 6 averages both over
    the members. `"gradient"`: it adds its gradient to β u_p, and eq. 5 moves χ_p along the members'
    buffers. The buffers u_p are f32[P, d]; `clusters` is P, and `beta` the momentum β.
    """

    average = "uniform"

    clusters: int = option(4, "number of models", low=1, search=(2, 3, 4, 6))
    beta: float = option(
        0.9, "momentum, of the clusters' buffers", low=0.0, traced=True, search=(0.1, 0.5, 0.9)
    )
    aggregate: str = option(
        "model",
        "average local models (option II), or one gradient each (I)",
        choices=("model", "gradient"),
    )
    estimate: str = option(
        "full",
        "choose on all local data, or on the first mini-batch of local training",
        choices=("full", "batch"),
    )

    @property
    def choice(self) -> ByScore:
        """Choose by the loss on the data of `estimate`."""
        return ByScore(first_batch=self.estimate == "batch")

    @property
    def local(self) -> FromBuffer:
        """Train from χ_p and u_p by eq. 4 and 6 (option II), or by eq. 5 (I)."""
        if self.aggregate == "model":
            return FromBuffer("beta")
        return FromBuffer("beta", OneGradient(first_batch=self.estimate == "batch"))
