"""FedAvg with fine-tuning (Wang et al. 2019): when all rounds are over, each client goes on from
the global model on its own samples. Papers compare personal methods with this.

The history is of the global model. In the end clients are scored once more, each with its own
model: `accuracy_finetuned`.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading

ABOUT = About(
    title="FedAvg + FT",
    family="personal",
    authors="Wang et al.",
    year=2019,
    paper="Federated evaluation of on-device personalization",
    venue="arXiv",
    link="https://arxiv.org/abs/1910.10252",
)
READINGS = (
    Reading(
        "Length of fine-tuning",
        paper="some epochs, tuned",
        here="50 steps of plain local training, without a proximal term; 0 leaves it out",
        option="train.finetune_steps",
    ),
    Reading(
        "Who fine-tunes",
        paper="clients for which it helps",
        here="all that are scored",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg + FT: one global model, which each client fine-tunes in the end.

    The rounds are FedAvg's. After the last one each client takes `train.finetune_steps` steps (50
    if the spec does not say it) from the global model f32[d] on its own samples, for a second
    score.
    """

    publishes_one_sum_per_round = True
    finetune_steps = 50
