"""FedBABU (Oh et al. 2022): FedAvg of the body; the head, the last layer, stays as it began and trains only in the end.

In the rounds every client trains the body below one and the same random head. When all rounds are over each client fine-tunes the
whole model on its own samples, and is scored once more: `accuracy_finetuned`. The history is that of the model before.

Readings:
- What is fine-tuned. Paper: the whole model, or for comparison a part of it. Here: the whole. Option: none.
- For how long. Paper: 5 epochs, which are 50 steps of its batches of 50 of 500 samples. Here: 50 steps. Option:
  `train.finetune_steps`; 0 leaves it out.
- Its learning rate. Paper: 0.1 at first, with a decay in the rounds. Here: `train.lr`, without the decay. Option: none.
- The head. Paper: random, or random with orthogonal rows. Here: random, as the model begins. Option: none.
- Weights of the mean. Paper: by samples; its program has equal ones. Here: by samples. Option: `average = "uniform"`.

Communication per participant and round: the body down, its update up.

A newcomer, which has never trained, is scored with the global model.
"""

from __future__ import annotations

import dataclasses

from cfljax.errors import SpecError
from cfljax.local.solver import Solver
from cfljax.methods import fedavg
from cfljax.methods.shared.config import TrainOptions
from cfljax.methods.shared.parts import make_in_parts
from cfljax.registry import Entry
from cfljax.registry.options import Value
from cfljax.types import Method, Model

PAPER = "Oh et al. 2022"


@dataclasses.dataclass(frozen=True)
class Config(fedavg.Config):
    """Options of FedBABU."""

    parts = (("head", "frozen"),)
    averaged = ("models",)
    waits = ""
    finetune_steps = 50

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Combinations with the rest of a run; raises SpecError."""
        if train.schedule is not None:
            raise SpecError(f'train.schedule = "{train.schedule}": the head of {where} does not train in the rounds; leave it out')


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FedBABU: a global body below a fixed head; in the end clients fine-tune both."""
    return make_in_parts(fedavg.make, config, model, solver, config.parts)


fedbabu = Entry(Config, make)
