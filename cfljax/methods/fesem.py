"""FeSEM (multi-centre federated learning, Xie et al. 2020), as its authors' program has it. All K centres are w_0 at first, and
clients are in random clusters. A participant trains from the centre of its cluster, and the centre becomes the mean of its members'
trained weights. Before each later round one step of K-means (Lloyd) on the last layer of the clients' trained weights makes the
clusters: each client joins the nearest mean of the step before, then the means are computed again. If a cluster has lost its last
member, K-means begins anew in the next round: at K random clients, which are the same ones in a run, with five steps.

With `program = "fedgroup"` it is the method that FedGroup's paper compares with. The K centres are different random models. A
participant joins the centre nearest in l2 to its last local weights W_i, trains from it, and the centre becomes the mean of the
new weights. As all W_i are w_0 at first, the clients of the first round join one centre. Where everybody takes part in each
round they may all stay with it, and the method is FedAvg; with a draw in each round clients part by when they came.

Readings:
- First memberships. Paper: not said. Here: K-means of random points in [−0.01, 0.01], as in the program, in which the means of
  these points are those of the first step, too. Option: none.
- What is compared. Paper: whole models. Here: the kernel of the last dense layer, as in the program. Option: `compare`.
- Who is clustered. Paper: all clients. Here: clients that have trained; the others stay in their first cluster. In the
  program everybody trains in each round. Option: none.
- A cluster of one client. Paper: trains. Here: the same; the program leaves it as it is. Option: none.
- Weights of the mean. Paper: uniform. Here: uniform, as in the program; FedGroup's program of Table 3 has them by samples.
  Option: `average = "samples"`.
- Number of clusters. Paper: given. Here: the same, or found from first updates (`round/auto.py`).
  Option: `clusters = "auto"`, `auto`, `most`.
- W_i of a client that has not trained, with FedGroup's program. Paper: not said. Here: w_0, as in that program; or its
  weights after one local epoch from w_0. Option: `fesem_init`.

Communication per participant and round: one model down, one up (the server keeps W_i and finds the nearest centre); with
`fesem_init = "own"` one down and one up more for every client that trains, in round 0.

A newcomer has no weights to compare: it takes the centre, of those in use, with the least loss on its labelled samples.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.blocks import combine
from cfljax.kernels.choose import nearest
from cfljax.kernels.mix import members, mix_updates, usable
from cfljax.lazy import jax, jnp
from cfljax.local.averages import AVERAGES, averages, with_lengths
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.models.flat import head_of, part_of
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.round.auto import CountedConfig, allowed, extras_of, finder, setup_of, with_probe
from cfljax.round.choice import join
from cfljax.round.common import first_model, first_models, traffic, with_exchange
from cfljax.round.config import PersonalConfig
from cfljax.round.state import Number
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Method, Model, Traffic, Tree

PAPER = "Xie et al. 2020"
FIRST_STEPS = 5
"""Steps of K-means where it begins."""
SMALL = 0.01
"""The random points of the first memberships are between −SMALL and SMALL."""


@dataclasses.dataclass(frozen=True)
class Config(CountedConfig, PersonalConfig):
    """Options of FeSEM."""

    averaged = ("centres",)

    own = False

    clusters: int | str = option(4, 'number of centres, or "auto": found before the first round', low=1, choices=("auto",))
    average: str = option("uniform", "weights of the members", choices=AVERAGES)
    program: str = option("authors", "the program that is followed: its authors', or FedGroup's", choices=("authors", "fedgroup"))
    compare: str = option("last", 'kernel of the last dense layer, or "head", "whole", or parameters by how their paths begin')
    fesem_init: str = option(
        "shared", "W_i of a client that has not trained: w_0, or one local epoch from it", choices=("shared", "own")
    )

    def check(self, where: str) -> None:
        """Options of one program; raises SpecError."""
        if self.program == "authors" and self.fesem_init != "shared":
            raise SpecError(f'{where}.fesem_init = "{self.fesem_init}": is for program = "fedgroup"; give that, too')
        if self.program == "fedgroup" and self.compare != "last":
            raise SpecError(f'{where}.compare = "{self.compare}": program = "fedgroup" compares whole models; leave out one')


class State(NamedTuple):
    """Centres, the clients' last weights, and who belongs to which."""

    centres: Array
    """f32[K, d]."""
    own: Array
    """f32[C, p]: what is compared of W_i; not a number before a client has trained. FedGroup's program: f32[C, d], w_0 before."""
    labels: Array
    """i32[C]."""
    number: Number | None = None
    """The number of clusters, if it was found."""
    means: Array | None = None
    """f32[K, p]: the means of K-means; not a number for an empty cluster. None with FedGroup's program."""
    order: Array | None = None
    """u32[C]: K-means begins at the clients with the smallest of these."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """FeSEM: K-means of the clients' last weights, one step a round."""
    k, find, ported = config.models_kept, finder(config, model, solver, "fesem"), config.program == "fedgroup"
    columns = slice(None) if ported else compared(config.compare, model, solver)

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, Tree]:
        return setup_of(find(key, federation, hyper))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Tree]) -> State:
        number, start = setup.get("number"), first_model(key, model)
        if not ported:
            return first_clusters(key, federation, jnp.tile(start, (k, 1)), start[columns].size, number)
        own = first_weights(config, solver, key, federation, start, hyper)
        return State(first_centres(key, model, k), own, jnp.full(federation.clients, -1, jnp.int32), number)

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        may = allowed(state.number, k)
        if ported:
            which = nearest(state.own[cohort.ids], state.centres, may)
            state = state._replace(labels=join(state.labels, cohort, which))
        else:
            state = clustered(state, may)
            which = state.labels[cohort.ids]
        start = state.centres[which]
        updates = solver.fit(key, federation, jobs_from(cohort, state.centres, which), hyper)
        delta = jnp.asarray(updates.delta)
        mix = averages(solver, federation, cohort, which, k, config.average, hyper)
        mixed = mix_updates(mix, delta, state.centres, solver.rule(key, hyper))
        sane = cohort.mask & usable(delta)
        own = state.own.at[jnp.where(sane, cohort.ids, federation.clients)].set((start + delta)[:, columns], mode="drop")
        sent = with_probe(traffic_of(config, federation, cohort), state.number, cohort)
        info = report(federation, cohort, updates, start, mixed.new[which], mixed, sent)
        return state._replace(centres=mixed.new, own=own), info

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        if not ported:
            return state.labels
        may = allowed(state.number, k)
        if config.fesem_init == "own":
            return jnp.where(state.labels < 0, nearest(state.own, state.centres, may), state.labels)
        unseen = jnp.argmin(state.labels)  # any client without a cluster: all of them have the same W_i, w_0
        return jnp.where(state.labels < 0, nearest(state.own[unseen][None], state.centres, may)[0], state.labels)

    models = lambda state: (state.centres, state.labels)  # noqa: E731
    extras = lambda state: extras_of(state.number)  # noqa: E731
    return Method(init, round, models, setup, score=score, extras=extras, newcomers_choose=True)


def first_clusters(key: Array, federation: Federation, centres: Array, size: int, number: Number | None) -> State:
    """The state with random clusters, from K-means of a random point f32[size] for each client that trains."""
    drawn = jax.vmap(lambda each: SMALL * keys.uniform(each, size))(keys.fold_each(key, "point", federation.uid))
    points = jnp.where(federation.trains[:, None], drawn, jnp.nan)
    nobody, means = jnp.full(federation.clients, -1, jnp.int32), jnp.full((len(centres), size), jnp.nan)
    state = State(centres, points, nobody, number, means, keys.scores(key, "order", federation.uid))
    return clustered(state, allowed(number, len(centres)))._replace(own=jnp.full_like(points, jnp.nan))


def clustered(state: State, may: Array | None) -> State:
    """The state after one step of K-means of the weights that there are, or, where a cluster is empty, after the first steps."""
    means, order = jnp.asarray(state.means), jnp.asarray(state.order)
    k, seen = means.shape[0], usable(state.own)
    empty = ~usable(means) if may is None else ~usable(means) & may
    first = jnp.lexsort((order, ~seen))[jnp.minimum(jnp.arange(k), seen.size - 1)]

    def step(_: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        labels = jnp.where(seen, nearest(state.own, found[1], may), found[0])
        member = members(labels, k, seen)
        count = member.sum(axis=1, keepdims=True)
        means = combine(member / jnp.maximum(count, 1), state.own, seen.astype(jnp.float32))
        return labels, jnp.where(count > 0, means, jnp.nan)

    begin = (state.labels, jnp.where(empty.any(), state.own[first], means))
    labels, new = jax.lax.fori_loop(0, jnp.where(empty.any(), FIRST_STEPS, 1), step, begin)
    return state._replace(labels=labels, means=jnp.where(seen.any(), new, means))


def compared(part: str, model: Model, solver: Solver) -> np.ndarray | slice:
    """The positions i64[p] of the compared weights in a model's vector."""
    if part == "whole":
        return slice(None)
    path = head_of(model) + ("/kernel" if part == "last" else "") if part in ("last", "head") else part
    columns = np.flatnonzero(part_of(model, path))
    if solver.parts is not None and np.isin(columns, solver.parts.kept).all():
        why = "these weights never reach the server (train.parts, train.freeze)"
        raise SpecError(f'method.fesem.compare = "{part}": {why}; give compare = "whole", or others')
    return columns


def first_weights(config: Config, solver: Solver, key: Array, federation: Federation, start: Array, hyper: Hyper) -> Array:
    """f32[C, d]: W_i before the first round, in FedGroup's program."""
    own = jnp.tile(start, (federation.clients, 1))
    if config.fesem_init == "shared":
        return own
    everyone, one_epoch = jnp.arange(federation.clients, dtype=jnp.int32), solver.with_work(Work(1, None, solver.work.batch))
    jobs = Jobs(everyone, jnp.asarray(federation.trains), jnp.ones(everyone.shape), start[None], jnp.zeros_like(everyone))
    delta = one_epoch.fit(keys.fold(key, "own"), federation, jobs, hyper).delta
    return own + jnp.where(usable(delta)[:, None], delta, 0.0)


def traffic_of(config: Config, federation: Federation, cohort: Cohort) -> Traffic:
    """What a round sends; in round 0 with what `first_weights` has sent."""
    sent = with_lengths(traffic(cohort), cohort, config.average)
    if config.fesem_init == "shared":
        return sent
    more = jnp.where(cohort.round == 0, jnp.sum(federation.trains, dtype=jnp.int32), 0)
    return with_exchange(sent, more, beside=True)


def first_centres(key: Array, model: Model, clusters: int) -> Array:
    """f32[K, d] independent initialisations, none of which is `w_0`."""
    return first_models(key, model, clusters + 1)[1:]


fesem = Entry(Config, make)
