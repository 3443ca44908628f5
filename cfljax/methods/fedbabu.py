"""FedBABU (Oh et al. 2022): FedAvg of the body; the head, the last layer, stays as it began and
trains only in the end.

In the rounds every client trains the body below one and the same random head. When all rounds are
over each client fine-tunes the whole model on its own samples, and is scored once more:
`accuracy_finetuned`. The history is of the model before.

A newcomer, which has never trained, is scored with the global model.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES_UNLIKE_PROGRAM, About, Reading

ABOUT = About(
    title="FedBABU",
    family="personal",
    authors="Oh et al.",
    year=2022,
    paper="FedBABU: towards enhanced representation for federated image classification",
    venue="ICLR",
    link="https://arxiv.org/abs/2106.06042",
    models="the body down and up",
    communication="the body down, its update up",
)
READINGS = (
    Reading(
        "Fine-tuned part",
        paper="the whole model, or for comparison a part of it",
        here="the whole",
    ),
    Reading(
        "Length of fine-tuning",
        paper="5 epochs, which are 50 of its steps",
        here="50 steps; 0 leaves it out",
        option="train.finetune_steps",
    ),
    Reading(
        "Its learning rate",
        paper="0.1 at first, with a decay over the rounds",
        here="`train.lr`, without decay",
    ),
    Reading(
        "Head",
        paper="random, or random with orthogonal rows",
        here="the model's random initial head",
    ),
    BY_SAMPLES_UNLIKE_PROGRAM,
)


@dataclasses.dataclass(frozen=True)
class FedBABU(FedAvg):
    """FedBABU: a global body below a fixed head; in the end clients fine-tune both.

    The rounds are FedAvg on the body; the head, the last layer, keeps its random initial weights.
    After the last round each client takes `train.finetune_steps` steps (50 if the spec does not say
    it) with the whole model, for a second score. `average` says how the bodies are averaged.
    """

    parts, finetune_steps = (("head", "frozen"),), 50
