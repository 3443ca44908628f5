"""Optimisers that go on, if participants train once a round (`train.optimizer_state`): a client's
optimiser continues from its last training, whichever model the client trains now, as in the
programs of Sattler et al. (momentum) and FedSoft (Adam)."""

from __future__ import annotations

from typing import Any

from cfljax.lazy import flatten_util, jnp
from cfljax.local.backends import make_rule
from cfljax.local.solver import Solver
from cfljax.round.config import MethodConfig
from cfljax.round.stages import ClientRows, Stage
from cfljax.types import Array, Federation, Hyper, Tree


class OptimizerState(ClientRows):
    """Keeps f32[C, m]: the state of each client's optimiser; not a number before its first
    training."""

    field, option = "optimiser", "optimizer_state"

    def init(self, state: Tree, federation: Federation, hyper: Hyper) -> Array:
        """Return states of which none is finite."""
        solver, model = self.solver, self.solver.model
        begun = make_rule(solver, solver.step_of(hyper)).init(
            model.unravel(jnp.zeros(model.size)), None
        )
        return jnp.full((federation.clients, flatten_util.ravel_pytree(begun)[0].size), jnp.nan)


def stage(name: str, train: Any, options: MethodConfig, solver: Solver) -> Stage | None:
    """Return the stage if optimisers go on from round to round."""
    return OptimizerState(name, solver) if solver.keeps_state else None
