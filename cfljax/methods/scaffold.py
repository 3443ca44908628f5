"""SCAFFOLD (Karimireddy et al. 2020): FedAvg whose clients add c − c_i to each gradient. The control variate c_i is a client's mean
gradient when it last trained, and c the mean of the c_i of all clients: so its steps go where all clients together want to go.

Beginning at the global model x, on each batch y ← y − η (∇f_i(y) − c_i + c). Then c_i⁺ replaces c_i, and the server sets
x ← x + server_lr · mean of (y − x) and c ← c + (1/C) · sum of (c_i⁺ − c_i) over the participants. C counts the clients that
train in some round. All control variates are 0 at first, so that the first round is FedAvg's.

Readings:
- The new c_i. Paper: the gradient at x (I), or c_i − c + (x − y) / (steps · η) (II). Here: II, as the mean of the gradients at
  the client's steps, which is the same for plain SGD. Option: none.
- Optimiser. Paper: SGD. Here: that of the run, with its momentum; it gets corrected gradients. Option: none.
- Weights. Paper: uniform, of x and of c. Here: uniform. Option: `average`.
- Clusters. Paper: one model. Here: one model. Option: `groups = "true"` for SCAFFOLD inside each true group.
- Compression. Paper: none. Here: of both vectors; a client adds to its c_i what the server got of the change. Option: none.

Communication per participant and round: one model and c down, one update and the change of c_i up.

`train.privacy`, `train.parts`, `train.freeze` and `train.server` are refused.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.mix import mix_updates, weights_by
from cfljax.lazy import jax, jnp
from cfljax.local.gradients import Gradient
from cfljax.local.optimiser import StepRule
from cfljax.local.own_steps import GradientAt, OwnSteps
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from, sizes
from cfljax.local.solver import Solver
from cfljax.local.train import Position, start_of, stepper
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.round.common import traffic
from cfljax.round.config import TrainOptions
from cfljax.round.control import ControlConfig, Controlled, controlled, counted, known, shares, unbroken
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model, Tree

PAPER = "Karimireddy et al. 2020"


@dataclasses.dataclass(frozen=True)
class Config(ControlConfig):
    """Options of SCAFFOLD."""

    trains_once = False
    own_steps = True

    server_lr: float = option(1.0, "how far the server moves along the mean update", low=0.0, traced=True)
    average: str = option("uniform", "weights of the clients", choices=("samples", "uniform"))

    @property
    def no_feedback(self) -> str:
        """Two vectors are sent."""
        return "it sends control vectors beside updates, which have their own"

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """The control variates are not private; raises SpecError."""
        if train.transit.privacy is not None:
            raise SpecError(f"train.privacy with {where}: control variates are sent without clipping or noise; leave it out")


class Carry(NamedTuple):
    """What the steps of a client carry."""

    at: Position
    correction: Tree
    """c − c_i."""
    total: Tree
    """The sum of the gradients so far, without correction."""
    steps: Array
    """f32[]: the number of steps so far."""


def make(config: Config, model: Model, solver: Solver) -> Method[Controlled]:
    """SCAFFOLD: FedAvg whose steps are corrected by control variates."""
    correcting = solver.with_own_steps(lambda hyper, rule: steps_of(model, hyper, rule))

    def round(key: Array, state: Controlled, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Controlled, Info]:
        which, own = jnp.maximum(state.labels[cohort.ids], 0), state.own[cohort.ids]
        jobs = jobs_from(cohort, state.models, which, home=state.control[which] - own)
        updates = correcting.train(key, federation, jobs, hyper)
        assert updates.home is not None
        meant = jnp.where((updates.steps > 0)[:, None], updates.home - own, 0.0)
        beside = keys.fold(key, "control")  # the draws of this vector differ from those of the update
        delta = solver.send(key, federation, jobs, updates.delta, hyper)
        change = solver.send(beside, federation, jobs, meant, hyper)
        sane, (delta, change) = unbroken(cohort, delta, change)
        mix = weights_by(which, cohort.mask, sizes(federation, cohort), state.models.shape[0], config.average)
        moved = mix_updates(mix, delta, jnp.zeros_like(state.models), solver.rule(key, hyper))
        models = state.models + hyper["server_lr"] * moved.new
        share = shares(state, federation, cohort, config.average)
        control = mix_updates(share, change, state.control, solver.rule(beside, hyper)).new
        kept = state.kept_by(cohort.ids, sane, own + known(solver, federation, cohort, hyper, meant, change))
        seen, mixed = updates._replace(delta=delta, home=None), counted(cohort, sane, models, moved)
        info = report(federation, cohort, seen, state.models[which], models[which], mixed, traffic(cohort, 2, 2))
        return Controlled(models, control, kept, state.labels), info

    return controlled("scaffold", config, model, round)


def steps_of(model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
    """The steps of a client. At home it has its correction before them, and the mean of its gradients after them."""
    numbers = LocalStep.of(hyper)
    decay, move = numbers.weight_decay, stepper(rule, numbers._replace(weight_decay=None), ())

    def begin(start: Tree, home: Array | None) -> Carry:
        assert home is not None
        return Carry(start_of(rule, start, None), model.unravel(home), jax.tree.map(jnp.zeros_like, start), jnp.float32(0))

    def step(gradient: GradientAt, carry: Carry) -> tuple[Carry, Array]:
        at, correction, total, steps = carry
        loss, samples, grads = gradient(at.params)
        if decay is not None:  # a part of f_i
            grads = jax.tree.map(lambda g, w: g + decay * w, grads, at.params)
        after = move(at, Gradient(loss, samples, jax.tree.map(jnp.add, grads, correction)))
        return Carry(after, correction, jax.tree.map(jnp.add, total, grads), steps + 1), loss

    def end(carry: Carry) -> tuple[Tree, Array]:
        return carry.at.params, model.ravel(carry.total) / jnp.maximum(carry.steps, 1.0)

    return OwnSteps(begin, step, end)


scaffold = Entry(Config, make)
