"""CFL-MGD (clustered federated learning by momentum gradient descent): IFCA's choice by loss, and a momentum buffer u_p beside each
of the P models χ_p (P is `clusters`).

`aggregate = "model"` (option II, the paper's Table 2): from (χ_p, u_p) each member runs its local steps u ← βu + ∇φ(χ),
χ ← χ − ηu (eq. 4); χ_p and u_p become the members' means (eq. 6). `"gradient"` (option I): one gradient each, u_i = β u_p + g_i,
χ_p ← χ_p − η/m Σ_members u_i, u_p the mean of the members' u_i (eq. 5). `beta` is the momentum; `train.momentum` must be 0, and the
optimiser "sgd".

Readings:
- Momentum and local steps. Paper: 0.9 for CIFAR-10; nothing for MNIST. Here: 0.9; in `experiments/` MNIST's 0.9 is ours and its
  ten full-batch steps are IFCA's, and what is found there about momentum rests on them. Option: `beta`.
- Order of a local step. Paper: buffer first in eq. 4, model first in Algorithm 1. Here: eq. 4. Option: none.
- Whose buffer. Paper: Algorithm 1's server sets its members' buffers to u_p; to the letter a client that changes its cluster
  brings the one it was last sent. Here: u_p. Option: none.
- The divisor m of option I. Paper: all clients. Here: the round's participants, the same when all take part. Option: none.
- Data of choice and gradient. Paper: all of a client's. Here: the same, or the first mini-batch of `train.batch`. Option:
  `estimate = "batch"`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`methods/shared/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- Fresh data. Paper: section 5 cuts the data into 2T disjoint parts for T rounds, for the proof. Here: there is never that much
  of it, and all of it serves in each round. Option: none.

Communication per participant and round: P models and one u_p down; u_i (option I), or χ_i and u_i (option II) up.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.errors import SpecError
from cfljax.kernels.mix import weights_by
from cfljax.lazy import jnp
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from, sizes, train_and_mix
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import CountedConfig, Number, allowed, count, extras_of, finder, setup_of, with_probe
from cfljax.methods.shared.choice import (
    by_loss,
    chosen,
    first_batches,
    gradient_work,
    join,
    losses_of,
    shares_of_all,
)
from cfljax.methods.shared.common import first_models, traffic
from cfljax.methods.shared.config import TrainOptions
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model, Tree

PAPER = "“Clustered federated learning based on momentum gradient descent for heterogeneous data”"


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig):
    """Options of CFL-MGD."""

    trains_once = False
    averaged = ("models", "velocity")
    chooses_by_loss = True
    average = "uniform"

    clusters: int | str = option(4, 'number of models, or "auto": found before the first round', low=1, choices=("auto",))
    beta: float = option(0.9, "momentum, of the clusters' buffers", low=0.0, traced=True)
    aggregate: str = option("model", "average local models (option II), or one gradient each (I)", choices=("model", "gradient"))
    estimate: str = option(
        "full", "choose on all local data, or on the first mini-batch of local training", choices=("full", "batch")
    )

    @property
    def no_feedback(self) -> str:
        """Buffers are sent."""
        return "it sends momentum buffers"

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Combinations with the rest of a run; raises SpecError."""
        if train.divided_by and self.aggregate == "gradient":
            raise SpecError(f'{train.divided_by}: models are averaged over members; set {where}.aggregate = "model"')
        if train.momentum != 0:
            raise SpecError(f"train.momentum = {train.momentum}: must be 0 for {where}, whose momentum is its option beta")
        if train.optimizer != "sgd":
            raise SpecError(
                f'train.optimizer = "{train.optimizer_pair[0]}": must be "sgd" for {where}, which keeps momentum buffers'
            )

    def releases(self, rounds: int) -> tuple[int, int]:
        """Noised sums: of updates and of buffers."""
        return 2 * rounds, 0

    @property
    def repeats(self) -> float:
        """All K models and one buffer go to each participant."""
        return (self.models_kept + 1) / 2


class State(NamedTuple):
    """Models, momentum buffers, and who belongs to which."""

    models: Array
    """f32[K, d]."""
    velocity: Array
    """f32[K, d]: u_p."""
    labels: Array
    """i32[C]."""
    number: Number | None = None
    """The number of clusters, if it was found."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """CFL-MGD: IFCA with a momentum buffer per cluster."""
    k, find = config.models_kept, finder(config, model, solver, "cfl_mgd")
    model_averaging = config.aggregate == "model"
    work = solver.work if model_averaging else gradient_work(solver.work, config.estimate)
    trainer = solver.with_work(work).with_step(lambda hyper: LocalStep.of(hyper)._replace(momentum=hyper["beta"]))

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        return setup_of(find(key, federation, hyper))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        models = first_models(key, model, k)
        return State(models, jnp.zeros_like(models), jnp.full(federation.clients, -1, jnp.int32), setup.get("number"))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        batch = solver.work.batch if config.estimate == "batch" else None
        seen = first_batches(key, federation, cohort, batch, solver.sequential)
        losses = losses_of(solver, seen, cohort, state.models)
        which = chosen(key, losses, federation, cohort, hyper, allowed(state.number, k))
        members = weights_by(which, cohort.mask, sizes(federation, cohort), k, "uniform")
        mix = members if model_averaging else shares_of_all(which, federation, cohort, k, "uniform")
        mixing = Mixing(mix, state.models, members, state.velocity)
        jobs = jobs_from(cohort, state.models, which, velocity=state.velocity)
        done = train_and_mix(trainer, key, federation, jobs, hyper, mixing)  # eq. 4 to 6; option I: −η u_i
        bill = traffic(cohort, vectors_down=count(state.number, k) + 1, vectors_up=2 if model_averaging else 1)
        bill = with_probe(bill, state.number, cohort)
        info = report_trained(federation, cohort, done, which, done.mixed.new - state.models, bill)
        return State(done.mixed.new, jnp.asarray(done.velocity), join(state.labels, cohort, which), state.number), info

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        return by_loss(solver, federation, state.models, state.labels, allowed(state.number, k))

    models = lambda state: (state.models, state.labels)  # noqa: E731
    return Method(init, round, models, setup, score=score, extras=lambda state: extras_of(state.number))


cfl_mgd = Entry(Config, make)
