"""IFCA (Ghosh et al. 2020): K models; each participant joins the one with the smallest loss on its
data.

Model averaging (their option II, the default): the participant trains from its cluster's model, and
the cluster's model becomes the mean of its members'. Gradient averaging (option I): one gradient
g_i per participant, w_k ← w_k − lr/m · Σ_members g_i.

Readings:
- Averaging. Paper: gradients (option I) or models (II). Here: models, as in its experiments.
  Option: `aggregate = "gradient"`.
- Data of the choice. Paper: a client's loss on all its data or on some. Here: on all; with "batch"
  option I uses the mini-batch for the gradient, too. Option: `estimate = "batch"`.
- Weights. Paper: uniform; its FEMNIST program and FedGroup's program weight by samples. Here:
  uniform. Option: `average = "samples"`.
- The divisor m of option I. Paper: the round's machines. Here: the same. Option: none.
- Initial models. Paper: random; its CIFAR-10 program draws until each model is chosen, its FEMNIST
  program trains each for 20 rounds on random clients. Here: random. Option: none.
- Empty clusters. Paper: keep their model. Here: the same, or random participants are put into them,
  as in Joint. Option: `reseed`.
- Weight sharing. Paper: clusters share the first layers on federated EMNIST; its program shares
  none. Here: whole models. Option: `train.parts = { body = "all" }`.
- Scored samples. Paper: its program lets test machines choose by their loss on all test samples.
  Here: they choose on one half and are scored on the other. Option: `train.test_clients_choose =
  "test_loss"`.

Communication per participant and round: K models down, one update (or gradient) up. The index of
the cluster is not counted.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.recipes import AVERAGES, Clustered, option

PAPER = "Ghosh et al. 2020"


@dataclasses.dataclass(frozen=True)
class IFCA(Clustered):
    """IFCA: each client joins the model with the smallest loss on its data."""

    chooses = True

    clusters: int = option(4, "number of models", low=1)
    estimate: str = option(
        "full",
        "choose on all local data, or on the first mini-batch of local training",
        choices=("full", "batch"),
    )
    aggregate: str = option(
        "model", "average local models, or one gradient each", choices=("model", "gradient")
    )
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    reseed: str = option(
        "never",
        "put random participants into the clusters",
        choices=("never", "when_empty", "always"),
    )
