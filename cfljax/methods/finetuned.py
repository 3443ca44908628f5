"""FedAvg or FedProx with fine-tuning (Wang et al. 2019): when all rounds are over, each client goes
on from the global model on its own samples. Papers compare personal methods with this.

The history is of the global model. In the end clients are scored once more, each with its own
model: `accuracy_finetuned`.

Readings:
- Length of fine-tuning. Paper: some epochs, tuned. Here: 50 steps of plain local training, without
  a proximal term. Option: `train.finetune_steps`; 0 leaves it out.
- Who fine-tunes. Paper: clients for which it helps. Here: all that are scored. Option: none.
- Weights of the mean. Paper: by samples. Here: the same. Option: `average`.

Communication per participant and round: one model down, one update up.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.methods.fedprox import FedProx

PAPER = "Wang et al. 2019"


@dataclasses.dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg + FT: one global model, which each client fine-tunes in the end."""

    one_sum, finetune_steps = True, 50


@dataclasses.dataclass(frozen=True)
class FedProxFT(FedProx):
    """FedProx + FT: FedProx's global model, which each client fine-tunes in the end."""

    one_sum, finetune_steps = True, 50
