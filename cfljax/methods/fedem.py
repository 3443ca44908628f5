"""FedEM (Marfoq et al. 2021): K models, and for each client i a mixture π_i of them: its data are
taken for draws from K underlying distributions in its own proportions.

Each round a participant finds which model explains each of its samples, q_ijk ∝ π_ik
exp(−ℓ_k(x_ij)) (E-step), takes the mean over its samples as its mixture, π_ik = mean_j q_ijk, and
trains every model on the loss weighted by q (M-step). The server averages each of the models. A
client is scored by the mean of the models' probabilities, weighted by π. Its label is the model
with the largest weight.

All K models of a participant are trained on the same stream of batches. With `clusters = 1` it is
FedAvg.

Readings:
- Initial models. Paper: random. Here: drawn independently, because equal models would stay equal.
  Option: none.
- Initial mixtures. Paper: any; its program begins with equal weights. Here: equal weights. Option:
  none.
- Weights of the mean. Paper: n_i over the samples of all clients; in its program clients that are
  not drawn count with the old model. Here: over the samples of the round's participants. Option:
  `average`.
- Loss of a batch. Paper: the sum over samples of q times loss. Here: its mean over the batch, as in
  its program. Option: none.
- Clients not drawn. Paper: all take part. Here: they keep their mixtures, as in its program.
  Option: none.
- Mixture of a newcomer. Paper: E-steps with fixed models; its program does one at each evaluation.
  Here: ten, from equal weights. Option: none.

Communication per participant and round: K models down, K updates up.

A newcomer, as any client that has not been drawn yet, gets its mixture by ten E-steps
on its own training samples from equal weights, with the models as they are. A client without
training samples has one model, the one of least loss on its test samples.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.recipes import Soft

PAPER = "Marfoq et al. 2021"


@dataclasses.dataclass(frozen=True)
class FedEM(Soft):
    """FedEM: every client has a mixture of models, found by expectation and maximisation."""
