"""FedEM (Marfoq et al. 2021): K models, and for each client i a mixture π_i of them: its data are
taken for draws from K underlying distributions in its own proportions.

Each round a participant finds which model explains each of its samples, q_ijk ∝ π_ik
exp(−ℓ_k(x_ij)) (E-step), takes the mean over its samples as its mixture, π_ik = mean_j q_ijk, and
trains every model on the loss weighted by q (M-step). The server averages each of the models. A
client is scored by the mean of the models' probabilities, weighted by π. Its label is the model
with the largest weight.

All K models of a participant are trained on the same stream of batches. With `clusters = 1` it is
FedAvg.

A newcomer, as any client that has not been drawn yet, gets its mixture by ten E-steps
on its own training samples from equal weights, with the models as they are. A client without
training samples has one model, the one of least loss on its test samples.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.about import About, Reading
from cfljax.round.recipes import Soft

ABOUT = About(
    title="FedEM",
    family="soft",
    authors="Marfoq et al.",
    year=2021,
    paper="Federated multi-task learning under a mixture of distributions",
    venue="NeurIPS",
    link="https://arxiv.org/abs/2108.10252",
    models="K down, K up",
    communication="K models down, K updates up",
)
READINGS = (
    Reading(
        "Initial models",
        paper="random",
        here="drawn independently, because equal models would stay equal",
    ),
    Reading(
        "Initial mixtures",
        paper="any; its program begins with equal weights",
        here="equal weights",
    ),
    Reading(
        "Weights of the mean",
        paper="n_i over the samples of all clients; in its program clients that are not drawn "
        "count with the old model",
        here="over the samples of the round's participants",
        option="average",
    ),
    Reading(
        "Loss of a batch",
        paper="the sum over samples of q times loss",
        here="its mean over the batch, as in its program",
    ),
    Reading(
        "Clients not drawn",
        paper="all take part",
        here="they keep their mixtures, as in its program",
    ),
    Reading(
        "Mixture of a newcomer",
        paper="E-steps with fixed models; its program does one at each evaluation",
        here="ten, from equal weights",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedEM(Soft):
    """FedEM: every client has a mixture of models, found by expectation and maximisation.

    The server has `clusters` models f32[K, d], and each client a mixture π_i, a row of f32[C, K]. A
    participant computes q_ijk ∝ π_ik exp(−ℓ_k(x_ij)) for its n samples, f32[K, n] (E-step), sets
    π_ik to the mean of q over its samples, and trains all models on the losses weighted by q
    (M-step). `average` says how each model is averaged over the participants.
    """
