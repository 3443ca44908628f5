"""Error feedback, if participants send one update a round (`train.compress.feedback`; Seide et al.
2014, Karimireddy et al. 2019): what compression drops of a client's update stays with the client,
and is added to its next update before that is compressed.

The method itself is untouched. During a round the cohort brings the clients' residuals
(`Cohort.kept`); they are added to the updates that are sent (`local.send`), and the report on the
round brings the new ones (`Info.kept`).

Readings:
- Whose residual. Paper: a worker's, of one model. Here: the client's, whichever cluster it is in:
  one that changes its cluster takes along what the old one did not get. Option: none.
- Who does not take part. Paper: all do. Here: it keeps its residual as it is. Option: none.
- Learning rate. Paper: the residual is of steps, γ g. Here: of updates, which are steps. Option:
  none.
- Before the first round (pre-training, probes). Paper: nothing. Here: compressed without feedback,
  since these updates are of another model and nothing follows them. Option: none.
"""

from __future__ import annotations

from typing import Any

from cfljax.lazy import jnp
from cfljax.local.solver import Solver
from cfljax.round.config import MethodConfig
from cfljax.round.stages import ClientRows, Stage
from cfljax.types import Array, Federation, Hyper, Tree


class Feedback(ClientRows):
    """Keeps f32[C, d]: what compression has dropped of each client's updates so far; zeros before
    its first."""

    field, option = "residual", "compress.feedback"

    def init(self, state: Tree, federation: Federation, hyper: Hyper) -> Array:
        """Return zeros."""
        return jnp.zeros((federation.clients, self.solver.model.size))


def stage(name: str, train: Any, options: MethodConfig, solver: Solver) -> Stage | None:
    """Return the stage if clients keep what compression drops."""
    return Feedback(name, solver) if solver.sending.feedback else None
