"""IFCA (Ghosh et al. 2020): K models; each participant joins the one with the smallest loss on its data.

Model averaging (their option II, the default): the participant trains from its cluster's model, and the cluster's model becomes
the mean of its members'. Gradient averaging (option I): one gradient g_i per participant, w_k ← w_k − lr/m · Σ_members g_i.

Readings:
- Averaging. Paper: gradients or models. Here: models, as in its experiments. Option: `aggregate = "gradient"`.
- Data of the choice. Paper: a client's loss, on all its data or on some. Here: all; or the mini-batch of `train.batch` samples
  with which local training begins, then with option I the gradient's, too. Option: `estimate = "batch"`.
- Weights. Paper: uniform; its program for FEMNIST, where sizes differ, has them by samples, and so has FedGroup's. Here: uniform.
  Option: `average = "samples"`.
- The divisor m of option I. Paper: the round's machines. Here: the same. Option: none.
- Initial models. Paper: random. For CIFAR-10 its program draws until each model is chosen; for FEMNIST it first trains each model
  for 20 rounds on a random part of the clients. Here: random. Option: none.
- Empty clusters. Paper: keep their model. Here: the same, or random participants are put into them, as Joint does. Option:
  `reseed`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`methods/shared/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- Weight sharing. Paper: first layers shared by all clusters, in its federated EMNIST; its program shares none. Here: whole models.
  Option: `train.parts = { body = "all" }`.
- What is scored. Paper: its program lets test machines choose by their loss on all test samples. Here: on half of them, and the
  others are scored. Option: `train.test_clients_choose = "test_loss"`.

Communication per participant and round: K models down, one update (or gradient) up. The number of the chosen cluster, a few
bits, is not counted.
"""

from __future__ import annotations

import dataclasses

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.local.averages import AVERAGES, averages, with_lengths
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, choose_and_train, jobs_from, train_and_mix
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import CountedConfig, allowed, count, extras_of, finder, setup_of, with_probe
from cfljax.methods.shared.choice import (
    by_loss,
    chosen,
    first_batches,
    gradient_work,
    is_private,
    join,
    losses_of,
    reseeded,
    shares_of_all,
)
from cfljax.methods.shared.common import Clusters, first_models, traffic
from cfljax.methods.shared.config import TrainOptions
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Tree

PAPER = "Ghosh et al. 2020"


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig):
    """Options of IFCA."""

    averaged = ("models",)
    waits = ""
    chooses_by_loss = True

    clusters: int | str = option(4, 'number of models, or "auto": found before the first round', low=1, choices=("auto",))
    estimate: str = option(
        "full", "choose on all local data, or on the first mini-batch of local training", choices=("full", "batch")
    )
    aggregate: str = option("model", "average local models, or one gradient each", choices=("model", "gradient"))
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    reseed: str = option("never", "put random participants into the clusters", choices=("never", "when_empty", "always"))

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Combinations with the rest of a run; raises SpecError."""
        if self.aggregate == "gradient" and train.optimizer != "sgd":
            raise SpecError(f'{where}.aggregate = "gradient": gradients are averaged; train.optimizer must be "sgd"')
        if train.divided_by and self.aggregate == "gradient":
            raise SpecError(f'{train.divided_by}: models are averaged over members; set {where}.aggregate = "model"')
        if train.buffered and self.aggregate == "gradient":
            why = "the gradients of a round arrive in several; set it to model"
            raise SpecError(f'train.asynchronous with {where}.aggregate = "gradient": {why}')

    @property
    def repeats(self) -> float:
        """All K models go to each participant."""
        return float(self.models_kept)


def make(config: Config, model: Model, solver: Solver) -> Method:
    """IFCA: each client joins the model with the smallest loss on its data."""
    k, find = config.models_kept, finder(config, model, solver, "ifca")
    model_averaging = config.aggregate == "model"
    trainer = solver if model_averaging else solver.with_work(gradient_work(solver.work, config.estimate))
    at_once = model_averaging and config.estimate == "full" and config.reseed == "never" and config.clusters != "auto"

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        return setup_of(find(key, federation, hyper))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> Clusters:
        return Clusters(first_models(key, model, k), jnp.full(federation.clients, -1, jnp.int32), setup.get("number"))

    def choice(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> Array:
        batch = solver.work.batch if config.estimate == "batch" else None
        seen = first_batches(key, federation, cohort, batch, solver.sequential)
        losses = losses_of(solver, seen, cohort, state.models)
        which = chosen(key, losses, federation, cohort, hyper, allowed(state.number, k))
        return reseeded(key, which, federation, cohort, k, config.reseed, count(state.number, k))

    def round(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Clusters, Info]:
        def mix_of(which: Array) -> Array:
            if model_averaging:
                return averages(trainer, federation, cohort, which, k, config.average, hyper)
            return shares_of_all(which, federation, cohort, k, config.average)

        if at_once and solver.chooses(federation) and not is_private(hyper):
            jobs = jobs_from(cohort, state.models, None)
            trained, which = choose_and_train(solver, key, federation, jobs, hyper, mix_of, state.models)
        else:
            which = choice(key, state, federation, cohort, hyper)
            jobs = jobs_from(cohort, state.models, which)
            trained = train_and_mix(trainer, key, federation, jobs, hyper, Mixing(mix_of(which), state.models))
        sent = with_probe(traffic(cohort, vectors_down=count(state.number, k)), state.number, cohort)
        sent = with_lengths(sent, cohort, config.average)
        info = report_trained(federation, cohort, trained, which, trained.mixed.new - state.models, sent)
        return Clusters(trained.mixed.new, join(state.labels, cohort, which), state.number), info

    def score(state: Clusters, federation: Federation, hyper: Hyper) -> Array:
        return by_loss(solver, federation, state.models, state.labels, allowed(state.number, k))

    models = lambda state: (state.models, state.labels)  # noqa: E731
    return Method(init, round, models, setup, score=score, extras=lambda state: extras_of(state.number))


ifca = Entry(Config, make)
