"""What clients keep from round to round, for any method: residuals and the states of their optimisers.

Error feedback, if participants send one update a round (`train.compress.feedback`; Seide et al. 2014, Karimireddy et al. 2019):
what compression drops of a client's update stays with the client, and is added to its next update before that is compressed.

`train.optimizer_state`, if they train once a round: a client's optimiser continues from its last training, whichever model
the client trains now, as in the programs of Sattler et al. (momentum) and FedSoft (Adam).

The method itself is untouched. During a round the cohort brings the clients' residuals (`Cohort.kept`); they are added to the
updates that are sent (`local.send`), and the report on the round brings the new ones (`Info.kept`).

Readings:
- Whose residual. Paper: a worker's, of one model. Here: the client's, whichever cluster it is in: one that changes its cluster
  takes along what the old one did not get. Option: none.
- Who does not take part. Paper: all do. Here: it keeps its residual as it is. Option: none.
- Learning rate. Paper: the residual is of steps, γ g. Here: of updates, which are steps. Option: none.
- Before the first round (pre-training, probes). Paper: nothing. Here: compressed without feedback, since these updates are of
  another model and nothing follows them. Option: none.
"""

from __future__ import annotations

from typing import NamedTuple

from cfljax.errors import SpecError
from cfljax.lazy import flatten_util, jnp
from cfljax.local.solver import Solver
from cfljax.local.ways import make_rule
from cfljax.round.state import inside
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Tree


class Remembering(NamedTuple):
    """The state of a method whose clients keep something."""

    inner: Tree
    """The method's own state."""
    residual: Array | None = None
    """f32[C, d]: what compression has dropped of each client's updates so far; zeros before its first."""
    optimiser: Array | None = None
    """f32[C, m]: the state of each client's optimiser; not a number before its first training."""


def with_memory(method: Method, solver: Solver, name: str) -> Method:
    """Return the method around which clients keep what its solver says (`Sending.feedback`, `keeps_state`). `name`: for errors."""
    model = solver.model

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> Remembering:
        inner, clients = method.init(key, federation, hyper, setup), federation.clients
        residual = jnp.zeros((clients, model.size)) if solver.sending.feedback else None
        if not solver.keeps_state:
            return Remembering(inner, residual)
        begun = make_rule(solver, solver.step_of(hyper)).init(model.unravel(jnp.zeros(model.size)), None)
        return Remembering(inner, residual, jnp.full((clients, flatten_util.ravel_pytree(begun)[0].size), jnp.nan))

    def round(key: Array, state: Remembering, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Remembering, Info]:
        seen = cohort._replace(kept=cohort.kept._replace(residual=state.residual, optimiser=state.optimiser))
        inner, info = method.round(key, state.inner, federation, seen, hyper)
        for option, kept, new in (
            ("compress.feedback", state.residual, info.kept.residual),
            ("optimizer_state", state.optimiser, info.kept.optimiser),
        ):
            if kept is not None and new is None:
                raise SpecError(f"train.{option}: method.{name} sends no updates of Solver.fit; leave it out for this method")
        return Remembering(inner, info.kept.residual, info.kept.optimiser), info

    return inside(method, init, round)
