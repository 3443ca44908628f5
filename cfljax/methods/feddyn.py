"""FedDyn (Acar et al. 2021): each client's objective gets a linear term that follows its own gradient, so that the global model
comes to rest where it minimises the mean of all clients' objectives, however long clients train.

A participant minimises f_i(w) − ⟨h_i, w⟩ + alpha/2 · ‖w − w_t‖² by its local training from the global model w_t, and sets
h_i ← h_i − alpha (w_i − w_t). The server sets h ← h − alpha · (1/C) · sum of (w_i − w_t) over the participants, and
w ← mean of the w_i − h / alpha. C counts the clients that train in some round; all h are 0 at first.

But for a constant, the objective is f_i(w) + alpha/2 · ‖w − (w_t + h_i / alpha)‖²: that has a proximal term and no other. The state
holds −h / alpha in place of h: the sum of a client's moves, and on the server the mean of these sums.

Readings:
- The minimum. Paper: exact, or by some epochs of SGD. Here: the run's local training. Option: none.
- Weights. Paper: uniform; its program divides alpha by n_i / mean n, so that unequal clients differ. Here: uniform. Option: none.
- Steps. Paper: nothing more; its program clips gradients to norm 10. Here: no clipping. Option: none.
- What is scored. Paper: the server's model w; its program scores the mean of all clients' last models. Here: w. Option: none.
- Clusters. Paper: one model. Here: one model. Option: `groups = "true"` for FedDyn inside each true group.
- Compression. Paper: none. Here: a client subtracts from its h_i what the server got of its move. Option: none.

Communication per participant and round: one model down, one update up. h_i stays where it is.

`train.parts`, `train.freeze` and `train.server` are refused.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.mix import mix_updates, weights_by
from cfljax.lazy import jnp
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from, sizes
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.round.common import traffic
from cfljax.round.control import ControlConfig, Controlled, controlled, counted, known, shares, unbroken
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model

PAPER = "Acar et al. 2021"


@dataclasses.dataclass(frozen=True)
class Config(ControlConfig):
    """Options of FedDyn."""

    alpha: float = option(0.1, "strength of the pull to the global model, and of the linear term", above=0.0, traced=True)

    @property
    def no_feedback(self) -> str:
        """The h_i hold it already."""
        return "its h_i hold what is dropped already"


def make(config: Config, model: Model, solver: Solver) -> Method[Controlled]:
    """FedDyn: FedAvg whose local objectives are corrected until their minima agree."""
    pulling = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["alpha"]))

    def round(key: Array, state: Controlled, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Controlled, Info]:
        which, own = jnp.maximum(state.labels[cohort.ids], 0), state.own[cohort.ids]
        begin, mine = state.models[which], jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        jobs = jobs_from(cohort, state.models, which, anchor=begin - own, anchor_of=mine)
        updates = pulling.train(key, federation, jobs, hyper)
        sane, (delta,) = unbroken(cohort, solver.send(key, federation, jobs, updates.delta, hyper))
        mix = weights_by(which, cohort.mask, sizes(federation, cohort), state.models.shape[0], "uniform")
        rule = solver.rule(key, hyper)
        moved = mix_updates(mix, delta, jnp.zeros_like(state.models), rule)
        drawn = shares(state, federation, cohort, "uniform").sum(axis=1, keepdims=True)
        control = state.control + drawn * moved.new
        moves = drawn > 0
        if rule.noise is None:  # with noise, a model that stays would reveal that no update was finite
            moves = moves & ~moved.lost[:, None]
        models = jnp.where(moves, state.models + moved.new + control, state.models)
        kept = state.kept_by(cohort.ids, sane, own + known(solver, federation, cohort, hyper, updates.delta, delta))
        seen, mixed = updates._replace(delta=delta), counted(cohort, sane, models, moved)
        info = report(federation, cohort, seen, begin, models[which], mixed, traffic(cohort))
        return Controlled(models, control, kept, state.labels), info

    return controlled("feddyn", config, model, round)


feddyn = Entry(Config, make)
