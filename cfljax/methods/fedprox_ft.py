"""FedProx with fine-tuning (Wang et al. 2019): when all rounds are over, each client goes on from
the global model on its own samples, as with `fedavg_ft`.
"""

from __future__ import annotations

import dataclasses

from cfljax.methods import fedavg_ft
from cfljax.methods.fedprox import FedProx

ABOUT = fedavg_ft.ABOUT._replace(title="FedProx + FT")
READINGS = fedavg_ft.READINGS


@dataclasses.dataclass(frozen=True)
class FedProxFT(FedProx):
    """FedProx + FT: FedProx's global model, which each client fine-tunes in the end.

    The rounds are FedProx's. After the last one each client takes `train.finetune_steps` steps (50
    if the spec does not say it) from the global model f32[d] on its own samples, without the
    proximal term, for a second score.
    """

    publishes_one_sum_per_round = True
    finetune_steps = 50
