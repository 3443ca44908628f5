"""CFL-MGD (clustered federated learning by momentum gradient descent): IFCA's choice by loss, and a
momentum buffer u_p beside each of the P models χ_p (P is `clusters`).

`aggregate = "model"` (option II, the paper's Table 2): from (χ_p, u_p) each member runs its local
steps u ← βu + ∇φ(χ), χ ← χ − ηu (eq. 4); χ_p and u_p become the members' means (eq. 6).
`"gradient"` (option I): one gradient each, u_i = β u_p + g_i, χ_p ← χ_p − η/m Σ_members u_i, u_p
the mean of the members' u_i (eq. 5). `beta` is the momentum; `train.momentum` must be 0, and the
optimiser "sgd".

Readings:
- Momentum. Paper: 0.9 for CIFAR-10; nothing for MNIST. Here: 0.9. Option: `beta`.
- Order of a local step. Paper: buffer first in eq. 4, model first in Algorithm 1. Here: eq. 4.
  Option: none.
- Whose buffer. Paper: u_p for all members (Algorithm 1); read literally, a client that changes its
  cluster brings the buffer that it was last sent. Here: u_p. Option: none.
- The divisor m of option I. Paper: all clients. Here: the round's participants. Option: none.
- Data of choice and gradient. Paper: all of a client's data. Here: the same, or the first
  mini-batch of `train.batch`. Option: `estimate = "batch"`.
- Fresh data. Paper: 2T disjoint parts of the data for T rounds, for the proof. Here: all data in
  each round. Option: none.

Communication per participant and round: P models and one u_p down; u_i (option I), or χ_i and u_i
(option II) up.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.recipes import Clustered, option
from cfljax.types import Hyper, LocalStep

PAPER = "“Clustered federated learning based on momentum gradient descent for heterogeneous data”"


@dataclasses.dataclass(frozen=True)
class CFLMGD(Clustered):
    """CFL-MGD: IFCA with a momentum buffer per cluster."""

    chooses, buffers, average = True, True, "uniform"

    clusters: int = option(4, "number of models", low=1)
    beta: float = option(0.9, "momentum, of the clusters' buffers", low=0.0, traced=True)
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

    def step(self, hyper: Hyper) -> LocalStep:
        """SGD with momentum, from the cluster's buffer (eq. 4)."""
        return LocalStep.of(hyper)._replace(momentum=hyper["beta"])
