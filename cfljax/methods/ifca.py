"""IFCA (Ghosh et al. 2020): K models; each participant joins the one with the smallest loss on its data.

Model averaging (their option II, the default): the participant trains from its cluster's model, and the cluster's model becomes
the mean of its members'. Gradient averaging (option I): one gradient g_i per participant, w_k ← w_k − lr/m · Σ_members g_i.

Readings:
- Averaging. Paper: gradients or models. Here: models, as in its experiments. Option: `aggregate = "gradient"`.
- Data of the choice. Paper: a client's loss, on all its data or on some. Here: all; or the mini-batch of `train.batch` samples
  with which local training begins, then with option I the gradient's, too. Option: `estimate = "batch"`.
- Weights. Paper: uniform. Here: uniform; FedGroup's program has them by samples. Option: `average = "samples"`.
- The divisor m of option I. Paper: the round's machines. Here: the same. Option: `divisor`.
- Initial models. Paper: random, and for CIFAR-10 its program draws until each model is chosen. Here: random; drawn again before
  the first round, on the participants of round 0, where asked. Option: `redraw`.
- Empty clusters. Paper: keep their model. Here: the same, or random participants are put into them, as Joint does. Option:
  `reseed`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`methods/shared/auto.py`) or by tries
  (`methods/shared/tries.py`). Option: `clusters = "auto"`, `auto`, `most`, `try_rounds`.
- Weight sharing. Paper: first layers shared by all clusters, in its federated EMNIST. Here: whole models. Option:
  `train.parts = { body = "all" }`.

Communication per participant and round: K models down, one update (or gradient) up. The number of the chosen cluster, a few
bits, is not counted.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable

import numpy as np

from cfljax import keys
from cfljax.devices.placement import from_host
from cfljax.errors import SpecError
from cfljax.federation.cohort import draw
from cfljax.kernels.choose import least_loss
from cfljax.kernels.mix import members
from cfljax.lazy import jnp
from cfljax.local.averages import AVERAGES, averages, with_lengths
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, choose_and_train, jobs_from, train_and_mix
from cfljax.local.solver import Solver
from cfljax.methods.shared.auto import CountedConfig, allowed, count, extras_of, finder, setup_of, with_probe
from cfljax.methods.shared.choice import (
    DIVISORS,
    among,
    by_loss,
    chosen,
    first_batches,
    gradient_work,
    is_private,
    join,
    losses_of,
    reseeded,
    shared_out,
)
from cfljax.methods.shared.common import Clusters, first_models, traffic
from cfljax.methods.shared.config import TrainOptions
from cfljax.methods.shared.tries import with_tries
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model, Tree

PAPER = "Ghosh et al. 2020"
DRAWS = 300
"""How often `redraw` tries."""


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
    divisor: str = option("participants", "of the summed gradients: of the round, all, or the cluster's own", choices=DIVISORS)
    reseed: str = option("never", "put random participants into the clusters", choices=("never", "when_empty", "always"))
    redraw: bool | float = option(
        False, "draw initial models again until each is chosen by at least this share of the first participants", low=0, high=1
    )

    def check(self, where: str) -> None:
        """Combinations; raises SpecError."""
        if self.redraw is True:
            why = "must be false, or the least share of the participants that must choose each model, as in 0.35"
            raise SpecError(f"{where}.redraw = true: {why}")
        if isinstance(self.clusters, int) and self.redraw * self.clusters > 1:
            most = 1 / self.clusters
            raise SpecError(f"{where}.redraw = {self.redraw}: {self.clusters} models cannot all have more than {most:.3g}")

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Combinations with the rest of a run; raises SpecError."""
        if self.aggregate == "gradient" and train.optimizer != "sgd":
            raise SpecError(f'{where}.aggregate = "gradient": gradients are averaged; train.optimizer must be "sgd"')
        if train.divided_by and self.aggregate == "gradient" and self.divisor != "members":
            raise SpecError(f'{train.divided_by}: models are averaged over members; set {where}.divisor = "members"')
        if train.buffered and self.aggregate == "gradient" and self.divisor != "members":
            told = "those of a round arrive in several; set it to members"
            raise SpecError(f'train.asynchronous with {where}.divisor = "{self.divisor}": {told}')
        if train.divided_by and self.redraw:
            raise SpecError(f"{train.divided_by} with {where}.redraw = {self.redraw}: whole models are drawn again; leave out one")
        if train.transit.choice is not None and self.redraw:
            why = "choices decide which models are drawn, and are not private"
            raise SpecError(f"train.privacy.choice with {where}.redraw = {self.redraw}: {why}; leave out one")

    @property
    def repeats(self) -> float:
        """All K models go to each participant."""
        return float(self.models_kept)


def make(config: Config, model: Model, solver: Solver) -> Method:
    """IFCA: each client joins the model with the smallest loss on its data."""
    k, find = config.models_kept, finder(config, model, solver, "ifca")
    model_averaging = config.aggregate == "model"
    trainer = solver if model_averaging else solver.with_work(gradient_work(solver.work, config.estimate))
    divisor = "members" if model_averaging else config.divisor
    at_once = model_averaging and config.estimate == "full" and config.reseed == "never" and config.clusters != "auto"

    @functools.partial(from_host, plan=solver.plan)
    def attempt(key: Array, federation: Federation, cohort: Cohort, number: Array) -> tuple[Array, Array]:
        models, may = first_models(key, model, k), jnp.arange(k) < number
        which = least_loss(among(may, losses_of(solver, federation, cohort, models)))
        each = jnp.sum(members(which, k, cohort.mask), axis=1)
        return models, jnp.min(jnp.where(may, each, cohort.mask.shape[0]))

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        number, made = find(key, federation, hyper), {}
        if config.redraw:
            made["models"] = _redrawn(attempt, key, federation, hyper, int(count(number, k)), float(config.redraw))
        return made | setup_of(number)

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> Clusters:
        models = setup["models"] if "models" in setup else first_models(key, model, k)
        return Clusters(models, jnp.full(federation.clients, -1, jnp.int32), setup.get("number"))

    def choice(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> Array:
        batch = solver.work.batch if config.estimate == "batch" else None
        seen = first_batches(key, federation, cohort, batch, solver.sequential)
        losses = losses_of(solver, seen, cohort, state.models)
        which = chosen(key, losses, federation, cohort, hyper, allowed(state.number, k))
        return reseeded(key, which, federation, cohort, k, config.reseed, count(state.number, k))

    def round(key: Array, state: Clusters, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Clusters, Info]:
        def mix_of(which: Array) -> Array:
            if divisor == "members":
                return averages(trainer, federation, cohort, which, k, config.average, hyper)
            return shared_out(which, federation, cohort, k, config.average, divisor)

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
    return with_tries(config, solver, Method(init, round, models, setup, score=score, extras=lambda state: extras_of(state.number)))


def _redrawn(
    attempt: Callable[..., tuple[Array, Array]],
    key: Array,
    federation: Federation,
    hyper: Hyper,
    clusters: int,
    wanted: float,
) -> np.ndarray:
    """HOST. f32[K, d]: the first draw of initial models in which each is chosen by at least the share `wanted` of the
    participants of round 0 (`hyper["participants"]` says how many they are)."""
    participants = int(hyper.get("participants", federation.clients))
    cohort = draw(keys.fold(key, "round", 0), federation, participants, jnp.int32(0), hyper)
    there, best, models = int(jnp.sum(cohort.mask)), -1, np.zeros(0)
    each = max(1, math.ceil(wanted * there - 1e-6))
    if clusters * each > there:
        raise SpecError(f"method.ifca.redraw = {wanted}: {there} participants cannot give each of {clusters} models {each}")
    for number in range(DRAWS):
        drawn, least = attempt(keys.fold(key, "redraw", number) if number else key, federation, cohort, jnp.int32(clusters))
        if int(least) > best:
            best, models = int(least), np.asarray(drawn)
        if best >= each:
            return models
    told = f"ifca.redraw = {wanted}: not reached in {DRAWS} draws of initial models, {best / there:.3g} is the best of them"
    warnings.warn(told, stacklevel=2)
    return models


ifca = Entry(Config, make)
