"""FedBABU (Oh et al. 2022): FedAvg of the body; the head, the last layer, stays as it began and
trains only in the end.

In the rounds every client trains the body below one and the same random head. When all rounds are
over each client fine-tunes the whole model on its own samples, and is scored once more:
`accuracy_finetuned`. The history is of the model before.

Readings:
- Fine-tuned part. Paper: the whole model, or for comparison a part of it. Here: the whole. Option:
  none.
- Length of fine-tuning. Paper: 5 epochs, which are 50 of its steps. Here: 50 steps; 0 leaves it
  out. Option: `train.finetune_steps`; 0 leaves it out.
- Its learning rate. Paper: 0.1 at first, with a decay over the rounds. Here: `train.lr`, without
  decay. Option: none.
- Head. Paper: random, or random with orthogonal rows. Here: the model's random initial head.
  Option: none.
- Weights of the mean. Paper: by samples; its program's are equal. Here: by samples. Option:
  `average = "uniform"`.

Communication per participant and round: the body down, its update up.

A newcomer, which has never trained, is scored with the global model.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg

PAPER = "Oh et al. 2022"


@dataclasses.dataclass(frozen=True)
class FedBABU(FedAvg):
    """FedBABU: a global body below a fixed head; in the end clients fine-tune both."""

    parts, finetune_steps = (("head", "frozen"),), 50
