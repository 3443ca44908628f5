"""FedDyn (Acar et al. 2021): each client's objective gets a linear term that follows its own
gradient, so that the global model comes to rest where it minimises the mean of all clients'
objectives, however long clients train.

A participant minimises f_i(w) − ⟨h_i, w⟩ + alpha/2 · ‖w − w_t‖² by its local training from the
global model w_t, and sets h_i ← h_i − alpha (w_i − w_t). The server sets h ← h − alpha · (1/C) ·
sum of (w_i − w_t) over the participants, and w ← mean of the w_i − h / alpha. C counts the clients
that train in some round; all h are 0 at first.

But for a constant, the objective is f_i(w) + alpha/2 · ‖w − (w_t + h_i / alpha)‖²: that has a
proximal term and no other. The state holds −h / alpha instead of h: the sum of a client's moves,
and on the server the mean of these sums.

Readings:
- The minimum. Paper: exact, or by some epochs of SGD. Here: the run's local training. Option: none.
- Weights. Paper: uniform; its program divides alpha by n_i / mean n. Here: uniform. Option: none.
- Clipping. Paper: none; its program clips gradients to norm 10. Here: none. Option: none.
- Scored model. Paper: the server's w; its program scores the mean of all clients' last models.
  Here: w. Option: none.
- Compression. Paper: none. Here: a client subtracts from its h_i what the server received. Option:
  none.

Communication per participant and round: one model down, one update up.

`train.parts`, `train.freeze` and `train.server` are refused.
"""

from __future__ import annotations

import dataclasses

from cfljax.round.recipes import Controlled, option
from cfljax.types import Array, Hyper, LocalStep

PAPER = "Acar et al. 2021"


@dataclasses.dataclass(frozen=True)
class FedDyn(Controlled):
    """FedDyn: FedAvg whose local objectives are corrected until their minima agree."""

    alpha: float = option(
        0.1,
        "strength of the pull to the global model, and of the linear term",
        above=0.0,
        traced=True,
    )

    def step(self, hyper: Hyper) -> LocalStep:
        """alpha/2 · ‖w − (w_t + h_i / alpha)‖²."""
        return LocalStep.of(hyper)._replace(mu=hyper["alpha"])

    def move(self, models: Array, mean: Array, control: Array, hyper: Hyper) -> Array:
        """Return the mean of the w_i, less h / alpha."""
        return models + mean + control
