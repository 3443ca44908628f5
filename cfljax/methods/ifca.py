"""IFCA (Ghosh et al. 2020): K models; each participant joins the one with the smallest loss on its
data.

Model averaging (their option II, the default): the participant trains from its cluster's model, and
the cluster's model becomes the mean of its members'. Gradient averaging (option I): one gradient
g_i per participant, w_k ← w_k − lr/m · Σ_members g_i.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.about import About, Reading
from cfljax.round.recipes import AVERAGES, ByScore, Clustered, LocalTraining, OneGradient, option

ABOUT = About(
    title="IFCA",
    family="clustered",
    authors="Ghosh et al.",
    year=2020,
    paper="An efficient framework for clustered federated learning",
    venue="NeurIPS",
    link="https://arxiv.org/abs/2006.04088",
    models="K down, 1 up",
    communication="K models down, one update (or gradient) up. The index of the cluster is not "
    "counted",
)
READINGS = (
    Reading(
        "Averaging",
        paper="gradients (option I) or models (II)",
        here="models, as in its experiments",
        option='aggregate = "gradient"',
    ),
    Reading(
        "Data of the choice",
        paper="a client's loss on all its data or on some",
        here='on all; with "batch" option I uses the mini-batch for the gradient, too',
        option='estimate = "batch"',
    ),
    Reading(
        "Weights",
        paper="uniform; its FEMNIST program and FedGroup's program weight by samples",
        here="uniform",
        option='average = "samples"',
    ),
    Reading(
        "The divisor m of option I",
        paper="the round's machines",
    ),
    Reading(
        "Initial models",
        paper="random; its CIFAR-10 program draws until each model is chosen, its FEMNIST "
        "program trains each for 20 rounds on random clients",
        here="random",
    ),
    Reading(
        "Empty clusters",
        paper="keep their model",
        here="the same, or random participants are put into them, as in Joint",
        option="reseed",
    ),
    Reading(
        "Weight sharing",
        paper="clusters share the first layers on federated EMNIST; its program shares none",
        here="whole models",
        option='train.parts = { body = "all" }',
    ),
    Reading(
        "Scored samples",
        paper="its program lets test machines choose by their loss on all test samples",
        here="they choose on one half and are scored on the other",
        option='train.test_clients_choose = "test_loss"',
    ),
)


@dataclasses.dataclass(frozen=True)
class IFCA(Clustered):
    """IFCA: each client joins the model with the smallest loss on its data.

    A participant gets the `clusters` models f32[K, d] and joins the one with the smallest loss on
    all its samples, or on its first mini-batch (`estimate`). Option II, `aggregate = "model"`: it
    trains from that model, which becomes the members' mean. Option I, `"gradient"`: it sends one
    gradient, and the model moves by −lr/m times the members' sum. `average` has the weights of the
    mean, and `reseed` says when random participants are put into clusters.
    """

    clusters: int = option(4, "number of models", low=1, search=(2, 3, 4, 6))
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

    @property
    def choice(self) -> ByScore:
        """Choose by the loss on the data of `estimate`, and put participants into clusters by
        `reseed`."""
        return ByScore(self.reseed, first_batch=self.estimate == "batch")

    @property
    def local(self) -> LocalTraining:
        """Train from the cluster's model (option II), or send one gradient (I)."""
        if self.aggregate == "model":
            return LocalTraining()
        return OneGradient(first_batch=self.estimate == "batch")
