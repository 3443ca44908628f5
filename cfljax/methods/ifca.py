"""IFCA (Ghosh et al. 2020): K models; each participant joins the one with the smallest loss on its data.

Model averaging (their option II, the default): the participant trains from its cluster's model, and the cluster's model becomes
the mean of its members'. Gradient averaging (option I): one gradient g_i per participant, w_k ← w_k − lr/m · Σ_members g_i.

Readings:
- Averaging. Paper: gradients or models. Here: models, as in its experiments. Option: `aggregate = "gradient"`.
- Data of the choice. Paper: a client's loss, on all its data or on some. Here: all; or the mini-batch of `train.batch` samples
  with which local training begins, then with option I the gradient's, too. Option: `estimate = "batch"`.
- Weights. Paper: uniform; its program for FEMNIST, where sizes differ, has them by samples, and so has FedGroup's. Here: uniform.
  Option: `average = "samples"`.
- The divisor m of option I. Paper: the round's machines. Here: the same. Option: none.
- Initial models. Paper: random. For CIFAR-10 its program draws until each model is chosen; for FEMNIST it first trains each model
  for 20 rounds on a random part of the clients. Here: random. Option: none.
- Empty clusters. Paper: keep their model. Here: the same, or random participants are put into them, as Joint does. Option:
  `reseed`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`round/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- Weight sharing. Paper: first layers shared by all clusters, in its federated EMNIST; its program shares none. Here: whole models.
  Option: `train.parts = { body = "all" }`.
- What is scored. Paper: its program lets test machines choose by their loss on all test samples. Here: on half of them, and the
  others are scored. Option: `train.test_clients_choose = "test_loss"`.

Communication per participant and round: K models down, one update (or gradient) up. The number of the chosen cluster, a few
bits, is not counted.
"""

from __future__ import annotations

import dataclasses

from cfljax.local.averages import AVERAGES
from cfljax.round.recipes import Clustered, CountedConfig, entry, option

PAPER = "Ghosh et al. 2020"


@dataclasses.dataclass(frozen=True)
class IFCA(CountedConfig, Clustered):
    """IFCA: each client joins the model with the smallest loss on its data."""

    chooses = True

    clusters: int | str = option(4, 'number of models, or "auto": found before the first round', low=1, choices=("auto",))
    estimate: str = option(
        "full", "choose on all local data, or on the first mini-batch of local training", choices=("full", "batch")
    )
    aggregate: str = option("model", "average local models, or one gradient each", choices=("model", "gradient"))
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    reseed: str = option("never", "put random participants into the clusters", choices=("never", "when_empty", "always"))


ifca = entry("ifca", IFCA)
