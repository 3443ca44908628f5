"""Per-FedAvg (Fallah et al. 2020): a global model w from which one step of gradient descent leads to a good model for each client.
That model, w − alpha ∇f_i(w) with the gradient on all training samples of the client, is scored; the accuracy of w itself is
the diagnostic `accuracy_global`.

On each batch a participant takes half of the samples, B1, for the step ahead w' = w − alpha ∇f(w; B1), and follows the gradient on
the other half there: w ← w − η ∇f(w'; B2), with the learning rate η of the run. So alpha = 0 is FedAvg on half of each batch.
Momentum, weight decay and the optimiser of the run move w. The trained w are averaged.

Readings:
- Second derivatives. Paper: (I − alpha ∇²f(w; B3)) before the gradient, left out (FO), or by differences (HF). Here: left out.
  Option: `hessian` has the exact product, on B1, so that a step follows the gradient of f(w'; B2) by w.
- Batches. Paper: independent ones. Here: every second sample of a shuffled batch is in B1, and the others are in B2; a single
  sample is in both. Option: none.
- Own step. Paper: on a batch; the program of pFedMe's authors scores after two steps on test samples. Here: on all training
  samples, made whenever clients are scored. Results keep w. Option: none.
- Weights of the mean. Paper: uniform; that program has them by samples. Here: uniform. Option: `average = "samples"`.

Communication per participant and round: one model down, one update up.

A newcomer makes its own step on its labelled samples, like every other client. Without samples it is scored with w.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.kernels.mix import usable
from cfljax.lazy import jax, jnp
from cfljax.local.gradients import Gradient
from cfljax.local.optimiser import StepRule
from cfljax.local.own_steps import GradientAt, OwnSteps
from cfljax.local.solver import Solver
from cfljax.local.train import Position, start_of, stepper
from cfljax.methods.shared.common import first_model, traffic, train_clusters
from cfljax.methods.shared.config import PersonalConfig
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, LocalStep, Method, Model

PAPER = "Fallah et al. 2020"


@dataclasses.dataclass(frozen=True)
class Config(PersonalConfig):
    """Options of Per-FedAvg."""

    trains_once = False
    served = "w"
    waits = ""

    own_steps = True

    alpha: float = option(0.01, "length of a client's own step", low=0.0, traced=True)
    hessian: bool = option(False, "whether steps have the term of second derivatives")
    average: str = option("uniform", "weights of the participants", choices=("samples", "uniform"))


class State(NamedTuple):
    """The global model, and the numbers of the clients."""

    w: Array
    """f32[1, d]."""
    labels: Array
    """i32[C]: 0, 1, …: each client has a model of its own."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """Per-FedAvg: a global model that is one step away from each client's own."""
    ahead = solver.with_own_steps(lambda hyper, rule: steps_of(config.hessian, hyper, rule))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        return State(first_model(key, model)[None], jnp.arange(federation.clients, dtype=jnp.int32))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        everyone, sent = jnp.zeros_like(cohort.ids), traffic(cohort)
        w, info = train_clusters(ahead, key, federation, cohort, state.w, everyone, hyper, config.average, sent)
        return state._replace(w=w), info

    def models(state: State) -> tuple[Array, Array]:
        return jnp.tile(state.w, (state.labels.shape[0], 1)), state.labels

    def adapt(state: State, federation: Federation, hyper: Hyper) -> Array:
        holds, work = federation.train.count > 0, jnp.ones(federation.clients)
        jobs = Jobs(state.labels, holds, work, state.w, jnp.zeros_like(state.labels))
        gradient, _ = solver.gradient(federation, jobs)
        return jnp.where(usable(gradient)[:, None], state.w - hyper["alpha"] * gradient, state.w)

    def also(state: State) -> dict[str, tuple[Array, Array]]:
        return {"global": (state.w, jnp.zeros_like(state.labels))}

    return Method(init, round, models, also=also, adapt=adapt, chooses=False)


def steps_of(hessian: bool, hyper: Hyper, rule: StepRule) -> OwnSteps:
    """The steps of a client on w. The loss for the report is that of w' on B2."""
    move, alpha = stepper(rule, LocalStep.of(hyper), ()), hyper["alpha"]

    def step(gradient: GradientAt, at: Position) -> tuple[Position, Array]:
        w = at.params
        ahead = jax.tree.map(lambda p, g: p - alpha * g, w, gradient(w, 0).grads)
        loss, count, grads = gradient(ahead, 1)
        if hessian:
            _, bent = jax.jvp(lambda params: gradient(params, 0).grads, (w,), (grads,))
            grads = jax.tree.map(lambda g, h: g - alpha * h, grads, bent)
        return move(at, Gradient(loss, count, grads)), loss

    return OwnSteps(lambda start, _: start_of(rule, start, None), step, lambda at: (at.params, None))


per_fedavg = Entry(Config, make)
