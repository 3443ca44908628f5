"""Methods whose clients each get a mixture of their own of all clients' models: state, round, and what cannot go with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.errors import SpecError
from cfljax.kernels.mix import usable, weighted_sum
from cfljax.lazy import jnp
from cfljax.local.reports import report
from cfljax.local.solver import Solver
from cfljax.registry.options import Value
from cfljax.round.common import first_model, keep_own, traffic
from cfljax.round.config import PersonalConfig, TrainOptions
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Method, Model


class MixtureConfig(PersonalConfig):
    """The base class of the options of these methods. Mixtures hold each client's model whole and with a weight of its own."""

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Noise and robust rules are for sums of updates; raises SpecError."""
        transit = train.transit
        if transit.privacy is not None and transit.privacy.noise > 0:
            why = "each client gets a mixture of others' models, which is no sum of clipped updates; use noise = 0"
            raise SpecError(f"train.privacy.noise = {transit.privacy.noise} with {where}: {why}")
        if transit.robust is not None:
            why = "each client gets a mixture of its own, in place of a mean over participants; leave it out"
            raise SpecError(f'train.robust = "{transit.robust.name}" with {where}: {why}')

    def releases(self, rounds: int) -> tuple[int, int]:
        """Noised sums: none, since noise is refused."""
        return 0, 0


class State(NamedTuple):
    """The models that the server has of the clients."""

    own: Array
    """f32[C, d]: the last model of each client; w_0 for those that have not trained."""
    drawn: Array
    """bool[C]: has sent a model that is finite."""
    size: Array
    """f32[C]: the number of training samples of each client."""
    first: Array
    """f32[d]: w_0."""


Start = Callable[[State, Cohort, Array, Hyper], tuple[Array, Array | None]]
"""(state, cohort, own f32[S, d], hyper) -> (the models f32[S, d] from which the participants train, and those to which they are
pulled; None: no pull)."""


Weights = Callable[[State, Array, Array, Hyper], Array]
"""(state, clients i32[S], their models own f32[S, d], hyper) -> f32[S, C]: the weight of each client's model in their mixtures.
Rows sum to one."""


def mixture_method(model: Model, solver: Solver, start: Start, weights: Weights) -> Method[State]:
    """The method in which `start` makes the participants' mixtures, with these weights."""

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        first, size = first_model(key, model), jnp.asarray(federation.train.count, jnp.float32)
        return State(jnp.tile(first, (federation.clients, 1)), jnp.zeros(federation.clients, bool), size, first)

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        own = state.own[cohort.ids]
        begin, pull = start(state, cohort, own, hyper)
        jobs = Jobs(cohort.ids, cohort.mask, cohort.work, begin, mine, pull, None if pull is None else mine)
        updates = solver.fit(key, federation, jobs, hyper)
        mixed = keep_own(cohort, updates.delta, begin)
        sane = cohort.mask & usable(updates.delta)
        new = jnp.where(sane[:, None], mixed.new, own)  # a client whose update is broken keeps its model
        into = jnp.where(sane, cohort.ids, federation.clients)
        info = report(federation, cohort, updates, begin, new, mixed, traffic(cohort))
        drawn = state.drawn.at[into].set(True, mode="drop")
        return state._replace(own=state.own.at[into].set(new, mode="drop"), drawn=drawn), info

    def models(state: State) -> tuple[Array, Array]:
        own = jnp.where(state.drawn[:, None], state.own, middle(state)[None])
        return own, jnp.arange(own.shape[0], dtype=jnp.int32)

    def shares_of_all(state: State, federation: Federation, hyper: Hyper) -> Array:
        """f32[C, C]: the mixtures that would be made next; of a client that has not trained the mean by samples, or itself."""
        everybody = jnp.arange(state.own.shape[0], dtype=jnp.int32)
        middle = jnp.where(jnp.any(state.drawn), shares(state), jnp.eye(everybody.shape[0]))
        return jnp.where(state.drawn[:, None], weights(state, everybody, state.own, hyper), middle)

    return Method(init, round, models, chooses=False, shares=shares_of_all)


def middle(state: State) -> Array:
    """f32[d]: the mean of the models of all clients that have trained, by samples; w_0 before there are any."""
    mean = mixed_by(shares(state)[None], state)[0]
    return jnp.where(jnp.any(state.drawn), mean, state.first)


def shares(state: State) -> Array:
    """f32[C]: the samples of each client that has trained over those of all that have; 0 for the others."""
    weight = jnp.where(state.drawn, state.size, 0.0)
    return weight / jnp.maximum(weight.sum(), 1.0)


def mixed_by(weights: Array, state: State) -> Array:
    """f32[S, d]: mixtures of the clients' models, with weights f32[S, C]."""
    return weighted_sum(weights, state.own)[0]
