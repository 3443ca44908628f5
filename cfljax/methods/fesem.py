"""FeSEM (multi-centre federated learning, Xie et al. 2020), in the form that FedGroup's paper compares with. There are K random
centres. A participant belongs to the centre nearest in l2 to its last local weights W_i, and trains from it. The centre becomes the
mean of the trained weights of its members among this round's participants.

As all W_i are w_0 at first, the clients of the first round join one centre, the one that happens to be nearest to w_0. Training
moves it away, and clients that take part for the first time in a later round join another: with a draw in each round clients
part by when they came, not by what they hold, and FeSEM is about as good as FedAvg or worse. Where everybody takes part in each
round all may stay with one centre. A client without a cluster is scored with the centre nearest to its W_i.

Readings:
- Centres. Paper: random. Here: independent draws of the initial weights, none of which is w_0 (FedGroup's program draws them
  so, too). Option: none.
- W_i of a client that has not trained. Paper: not said. Here: w_0, as in FedGroup's program; or its weights after one local
  epoch from w_0. Option: `fesem_init = "own"`.
- Weights of the mean. Paper: uniform. Here: uniform; FedGroup's program of Table 3 has them by samples. Option: `average =
  "samples"`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`round/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- Order of a round. Paper: clients join a centre, it becomes the mean of their last weights, they train from it. Here: they
  join, train from the centre, and it becomes the mean of their new weights, as in FedGroup's program. Option: none.
- Members. Paper: all clients. Here: this round's participants. Option: none (`train.participation` says how many).

Communication per participant and round: one model down, one up (the server keeps W_i and finds the nearest centre); with
`fesem_init = "own"` one down and one up more for every client that trains, in round 0.

A newcomer has no weights to compare: it takes the centre, of those in use, with the least loss on its labelled samples.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax import keys
from cfljax.kernels.choose import nearest
from cfljax.kernels.mix import mix_updates, usable
from cfljax.lazy import jnp
from cfljax.local.averages import AVERAGES, averages, with_lengths
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.round.auto import CountedConfig, Number, allowed, extras_of, finder, setup_of, with_probe
from cfljax.round.choice import join
from cfljax.round.common import first_model, first_models, traffic, with_exchange
from cfljax.round.config import PersonalConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Method, Model, Traffic, Tree

PAPER = "Xie et al. 2020"


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig, PersonalConfig):
    """Options of FeSEM."""

    averaged = ("centres",)

    own = False

    clusters: int | str = option(4, 'number of centres, or "auto": found before the first round', low=1, choices=("auto",))
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    fesem_init: str = option(
        "shared", "W_i of a client that has not trained: w_0, or one local epoch from it", choices=("shared", "own")
    )


class State(NamedTuple):
    """Centres, the clients' last weights, and who belongs to which."""

    centres: Array
    """f32[K, d]."""
    own: Array
    """f32[C, d]: W_i."""
    labels: Array
    """i32[C]."""
    number: Number | None = None
    """The number of clusters, if it was found."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FeSEM: clients belong to the centre nearest to their last weights."""
    k, one_epoch = config.models_kept, solver.with_work(Work(1, None, solver.work.batch))
    find = finder(config, model, solver, "fesem")

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        return setup_of(find(key, federation, hyper))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        everyone, start = jnp.arange(federation.clients, dtype=jnp.int32), first_model(key, model)
        own = jnp.tile(start, (federation.clients, 1))
        if config.fesem_init == "own":
            jobs = Jobs(everyone, jnp.asarray(federation.trains), jnp.ones(everyone.shape), start[None], jnp.zeros_like(everyone))
            delta = one_epoch.fit(keys.fold(key, "own"), federation, jobs, hyper).delta
            own = own + jnp.where(usable(delta)[:, None], delta, 0.0)
        return State(first_centres(key, model, k), own, jnp.full(federation.clients, -1, jnp.int32), setup.get("number"))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        which = nearest(state.own[cohort.ids], state.centres, allowed(state.number, k))
        start = state.centres[which]
        updates = solver.fit(key, federation, jobs_from(cohort, state.centres, which), hyper)
        delta = jnp.asarray(updates.delta)
        mix = averages(solver, federation, cohort, which, k, config.average, hyper)
        mixed = mix_updates(mix, delta, state.centres, solver.rule(key, hyper))
        sane = cohort.mask & usable(delta)
        own = state.own.at[jnp.where(sane, cohort.ids, federation.clients)].set(start + delta, mode="drop")
        info = report(
            federation, cohort, updates, start, mixed.new[which], mixed, with_probe(sent(federation, cohort), state.number, cohort)
        )
        return State(mixed.new, own, join(state.labels, cohort, which), state.number), info

    def sent(federation: Federation, cohort: Cohort) -> Traffic:
        told = with_lengths(traffic(cohort), cohort, config.average)
        if config.fesem_init == "shared":
            return told
        more = jnp.where(cohort.round == 0, jnp.sum(federation.trains, dtype=jnp.int32), 0)
        return with_exchange(told, more, beside=True)

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        may = allowed(state.number, k)
        if config.fesem_init == "own":
            return jnp.where(state.labels < 0, nearest(state.own, state.centres, may), state.labels)
        unseen = jnp.argmin(state.labels)  # any client without a cluster: all of them have the same W_i, w_0
        return jnp.where(state.labels < 0, nearest(state.own[unseen][None], state.centres, may)[0], state.labels)

    models = lambda state: (state.centres, state.labels)  # noqa: E731
    extras = lambda state: extras_of(state.number)  # noqa: E731
    return Method(init, round, models, setup, score=score, extras=extras, newcomers_choose=True)


def first_centres(key: Array, model: Model, clusters: int) -> Array:
    """f32[K, d] independent initialisations, none of which is `w_0`."""
    return first_models(key, model, clusters + 1)[1:]


fesem = Entry(Config, make)
