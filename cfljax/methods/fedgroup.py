"""FedGroup (Duan et al. 2021): some clients are grouped by the directions of their first updates, and FedAvg runs inside the
groups. A client that takes part later (a newcomer) joins the group whose direction is closest to that of its first update. With
`mu` the method is FedGrouProx: FedProx inside the groups.

Ablations: `cold_start = "rcc"` (random clients are the centres), `assign = "random"` (RAC: newcomers join at random, without
pre-training, once or at each selection). A group without participants keeps its latest update; inter-group aggregation moves its
model, too. A group that the cold start left without a member is never chosen. A client whose pre-training is not finite is a zero
vector to eq. 9.

Readings. The published text and the authors' program differ; the defaults follow the program, with which Table 3 was made:
- Length of a pre-training. Paper: E epochs (Algorithm 3). Here: 50 mini-batch steps, with the proximal term (the program).
  Option: `pretrain_epochs`.
- Start of a group. Paper: w_0 (Algorithm 2, line 2); Algorithm 3 prints the mean of the members' updates. Here: the mean of
  their pre-trained weights (the program). The directions are the same. Option: none.
- Number of groups. Paper: given. Here: the same, or found from the updates of alpha · `most` clients, which the cold start then
  groups (`methods/shared/auto.py`). Option: `clusters = "auto"`, `auto`, `most`.
- K-means of the cold start. Paper: K-means++. Here: ten restarts, at most 20 iterations (the program). Option: none.
- Newcomer. Paper: from the auxiliary global model, against the groups' latest updates. Here: from w_0, against the cold-start
  directions (the program), as one round's update of a group soon says more about who took part than about the group: on MNIST
  newcomers then join almost at random. `"auxiliary"` compares with the groups' models as seen from the auxiliary one, where the
  newcomer starts, and there agrees with "initial" on nine of ten. Option: `newcomer = "latest"`.
- When newcomers are assigned. Paper: when they come. Here: with "initial" the answer does not depend on the round, so all of
  them are computed in `setup`; a client still gets its label when it first takes part. Otherwise pre-training takes the round's
  learning rate, also where it is for scoring only. Option: none.
- First round of a newcomer. Paper: E − 1 epochs after pre-training. Here: all (the program). Option: none.
- Weights inside a group. Paper: by samples. Here: the same. Option: `average`.
- Inter-group aggregation. Paper: pull towards the others (Algorithm 2, line 19), or eq. 20. Here: the former; `"weighted"` is
  the program's. Option: `inter_group = "normalised"`.
- Times. Paper: one cold start. Here: one; or another after each `every` rounds (`methods/shared/anew.py`). Option: `every`.
- Random group. Paper: once. Here: the same; the program draws at each selection. Option: `rac = "always"`.

Communication of a round: per participant one model down and one update up; per pre-training one model down and one update
up, in the round in which it happens: the cold start's in round 0, a newcomer's when it first takes part.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.devices.quick import quick_jit
from cfljax.errors import SpecError
from cfljax.kernels.inter_group import READINGS, inter_group
from cfljax.lazy import jax, jnp
from cfljax.local.averages import AVERAGES, averages, with_lengths
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from, train_and_mix
from cfljax.local.solver import Solver
from cfljax.methods.shared.anew import clustered, every, with_anew
from cfljax.methods.shared.auto import CountedConfig, Number, count, extras_of, number_of, setup_of, with_probe
from cfljax.methods.shared.choice import join
from cfljax.methods.shared.cold_start import COLD_STARTS, directions, first_groups, founders
from cfljax.methods.shared.common import first_model_on_host, traffic, with_exchange
from cfljax.methods.shared.compass import Compass, closest, joined, place, turned
from cfljax.methods.shared.config import TrainOptions
from cfljax.methods.shared.pretrain import Pretrainer, all_updates, pretrainer, solver_before
from cfljax.methods.shared.similarity import similarity
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model, Traffic, Tree, on_host

PAPER = "Duan et al. 2021, “FedGroup: efficient clustered federated learning via decomposed data-driven measure”"

NEWCOMER = ("initial", "latest", "auxiliary")


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig):
    """Options of FedGroup."""

    averaged = ("models",)
    waits = ""

    clusters: int | str = option(3, 'number of groups, or "auto": found before the first round', low=1, choices=("auto",))
    cold_start: str = option("edc", "group by decomposed cosines, by MADC, or by random clients as centres", choices=COLD_STARTS)
    alpha: int = option(20, "clients that pre-train for the cold start, per group", low=1)
    pretrain_steps: int = option(50, "mini-batch steps of a pre-training", low=1)
    pretrain_epochs: int | None = option(None, "epochs of a pre-training, in place of pretrain_steps", low=1)
    newcomer: str = option("initial", "where a newcomer starts, and what it is compared with", choices=NEWCOMER)
    assign: str = option("eq9", "a newcomer joins the closest group, or a random one (RAC)", choices=("eq9", "random"))
    rac: str = option("once", "a random group for good, or a new one at each selection", choices=("once", "always"))
    eta_g: float = option(0.0, "step of the inter-group aggregation", low=0.0, traced=True)
    inter_group: str = option("difference", "reading of the inter-group aggregation", choices=READINGS)
    mu: float = option(0.0, "strength of the proximal term (FedGrouProx)", low=0.0, traced=True)
    average: str = option("samples", "weights of the participants inside a group", choices=AVERAGES)
    every: int | None = every()
    similarity: str = similarity()
    snapshots: bool = option(False, "keep the EDC and MADC matrices of the cold start")

    def check(self, where: str) -> None:
        """Combinations; raises SpecError."""
        if self.pretrain_epochs is not None and self.pretrain_steps != 50:
            raise SpecError(f"{where}.pretrain_epochs = {self.pretrain_epochs}: give pretrain_steps or pretrain_epochs, not both")
        if self.every is not None and self.snapshots:
            why = "they are of one clustering; leave one of them out"
            raise SpecError(f"{where}.every = {self.every} with snapshots = true: {why}")
        if self.clusters == "auto" and self.cold_start == "rcc":
            raise SpecError(f'{where}.clusters = "auto": cold_start = "rcc" looks at no updates; give a number of clusters')

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Combinations with the rest of a run; raises SpecError."""
        beside = [train.divided_by, *(f"train.{name}" for name in ("server", "asynchronous") if getattr(train, name) is not None)]
        if self.every is not None and any(beside):
            why = "new clusters have other models; leave one of them out"
            raise SpecError(f"{where}.every = {self.every} with {next(filter(None, beside))}: {why}")
        if train.server is not None and self.moving:
            why = "newcomers are compared with what the round made of the models, before the server's step"
            raise SpecError(f'train.server with {where}.newcomer = "{self.newcomer}": {why}; take "initial"')

    @property
    def by_direction(self) -> bool:
        """Whether newcomers pre-train and join the closest group."""
        return self.assign == "eq9"

    @property
    def moving(self) -> bool:
        """Whether what newcomers are compared with changes from round to round."""
        return self.by_direction and self.newcomer != "initial"

    def releases(self, rounds: int) -> tuple[int, int]:
        """One noised sum per round, and one over all clients for each cold start."""
        return rounds, 1 if self.every is None else 1 + (rounds - 1) // self.every


class State(NamedTuple):
    """The groups, and what newcomers are compared with."""

    models: Array
    """f32[K, d]."""
    labels: Array
    """i32[C]; −1: has not taken part yet."""
    guess: Array
    """i32[C] the group that each client will join, if this does not depend on the round; else −1."""
    founder: Array
    """bool[C]: whether the client has pre-trained for the cold start."""
    compass: Compass
    snapshot: dict[str, Array]
    """The arrays of the cold start that the option `snapshots` saves."""
    number: Number | None = None
    """The number of groups, if it was found."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FedGroup: groups from the directions of first updates; FedGrouProx with mu."""
    solver = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["mu"]))
    before = solver_before(solver, config.pretrain_epochs, None if config.pretrain_epochs else config.pretrain_steps)
    by_direction, moving = config.by_direction, config.moving

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        compass = Compass(*setup["compass"])
        return State(**setup | {"models": compass.start + compass.directions, "compass": compass})

    def choose(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> Array:
        """i32[S]: the group of each participant, for newcomers the one that they join."""
        own, known = state.labels[cohort.ids], state.guess[cohort.ids]
        if moving:
            new = cohort.mask & (own < 0)
            known = closest(before, key, federation, hyper, state.compass, cohort.ids, new)
        if not by_direction and config.rac == "always":
            drawn = _random_groups(keys.fold(key, "rac"), federation.uid[cohort.ids], state.compass.active)
            return jnp.where(state.founder[cohort.ids] & (own >= 0), own, drawn)
        return jnp.maximum(jnp.where(own >= 0, own, known), 0)

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        which = choose(key, state, federation, cohort, hyper)
        new = cohort.mask & (state.labels[cohort.ids] < 0)
        mix = averages(solver, federation, cohort, which, config.models_kept, config.average, hyper)
        jobs = jobs_from(cohort, state.models, which)
        trained = train_and_mix(solver, key, federation, jobs, hyper, Mixing(mix, state.models))
        after = inter_group(trained.mixed.new, hyper["eta_g"], config.inter_group, state.compass.active)
        labels = join(state.labels, cohort, which)
        moved = (mix > 0).any(axis=1) & ~trained.mixed.lost
        compass = turned(state.compass, state.models, after, moved, config.newcomer) if moving else state.compass
        sent = with_probe(_traffic(state, cohort, new & by_direction, config.every), state.number, cohort, config.every)
        sent = with_lengths(sent, cohort, config.average)
        diag = {"newcomers": jnp.sum(new, dtype=jnp.int32), "members": _members(labels, config.models_kept)}
        info = report_trained(federation, cohort, trained, which, after - state.models, sent, **diag)
        return state._replace(models=after, labels=labels, compass=compass), info

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        found = state.guess
        if moving:
            who = federation.trains & (state.labels < 0)
            found = place(before, keys.root(0), federation, hyper, state.compass, who)
        return jnp.where(state.labels >= 0, state.labels, found)

    models = lambda state: (state.models, state.labels)  # noqa: E731
    setup = functools.partial(_found, config, model, solver, pretrainer(before))
    extras = lambda state: state.snapshot | extras_of(state.number)  # noqa: E731
    method = Method(init, round, models, setup, score=score, extras=extras)
    return with_anew(config.every, method)


def _found(
    config: Config, model: Model, solver: Solver, train_before: Pretrainer, key: Array, federation: Federation, hyper: Hyper
) -> dict[str, Tree]:
    """HOST. The cold start, and the groups of all others where these do not depend on the round."""
    train = functools.partial(train_before, key, federation, hyper, start := first_model_on_host(key, model))
    wanted = 1 if config.clusters == "auto" else config.models_kept
    ids = founders(key, federation, config.models_kept, config.alpha, config.cold_start, wanted)
    uid = np.asarray(federation.uid)
    delta = all_updates(train(ids), config.similarity)
    number = number_of(config, delta[np.argsort(uid[ids], kind="stable")])
    grouping = (int(count(number, config.models_kept)), config.cold_start, config.snapshots)
    found, snapshot = first_groups(keys.fold(key, "cold_start"), delta, uid[ids], *grouping)
    founder, labels = np.zeros(federation.clients, bool), np.full(federation.clients, -1, np.int32)
    founder[ids], labels[ids] = True, found
    parts = [(ids, delta)] if config.similarity == "exact" else train(ids)
    compass = Compass(*map(on_host, (start, *directions(parts, found, config.models_kept, solver.rule(key, hyper)))))
    guess, others = labels.copy(), np.flatnonzero(np.asarray(federation.holds) & (labels < 0))
    if not config.by_direction:
        guess[others] = np.asarray(quick_jit(_random_groups)(keys.fold(key, "rac"), uid, compass.active))[others]
    elif not config.moving:
        for part, moves in train(others):
            guess[part] = quick_jit(joined)(compass, moves)
    made: dict[str, Tree] = {"labels": labels, "guess": guess, "founder": founder, "compass": compass, "snapshot": snapshot}
    return made | setup_of(number)


def _random_groups(key: Array, uid: Array, active: Array) -> Array:
    """i32[n]: RAC, one of the active groups for each identity."""
    draws = jax.vmap(lambda k: keys.bits(k, active.size))(keys.fold_each(key, "client", jnp.asarray(uid)))
    return jnp.argmax(jnp.where(active, (draws >> 1) + 1, 0), axis=1).astype(jnp.int32)


def _traffic(state: State, cohort: Cohort, pretrained: Array, every: int | None) -> Traffic:
    """The round's own, and its pre-trainings: one model down, one update up each."""
    founders = jnp.where(clustered(cohort.round, every), jnp.sum(state.founder, dtype=jnp.int32), 0)
    extra = jnp.sum(pretrained, dtype=jnp.int32) + founders
    return with_exchange(traffic(cohort), extra, beside=True)


def _members(labels: Array, groups: int) -> Array:
    """i32[K]: clients assigned to each group so far."""
    return jnp.zeros(groups, jnp.int32).at[jnp.where(labels >= 0, labels, groups)].add(1, mode="drop")


fedgroup = Entry(Config, make)
