"""LG-FedAvg (Liang et al. 2020): FedAvg of the head; the body, which makes the representation,
stays with its client.

Both are trained together on the client's data. A client that has not been drawn yet has the body
that all begin with.

Readings:
- Start. Paper: its program first trains whole models by FedAvg. Here: the initial model. Option:
  none.
- Global layers. Paper: the top layers, in varying number. Here: the last dense layer. Option:
  `train.parts` with fedavg.
- Weights of the mean. Paper: by samples; its program's are equal. Here: by samples. Option:
  `average = "uniform"`.
- Scored model. Paper: its program keeps each client's best model by test accuracy. Here: the last.
  Option: none.
- Newcomers. Paper: the ensemble of all local models. Here: the global head on the initial body.
  Option: none.

Communication per participant and round: the head down, its update up.

A newcomer, which has never trained, is scored with the global head and the body that all clients
begin with.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg

PAPER = "Liang et al. 2020"


@dataclasses.dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """LG-FedAvg: a global head, and a body for each client."""

    parts, own = (("body", "client"),), True
