"""`Peers`: the recipe of methods with a model for each client, which may train near its mixture of
all clients' models."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from cfljax.kernels.mix import usable, weighted_sum
from cfljax.lazy import jax, jnp
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from
from cfljax.round.ask import Ask
from cfljax.round.common import first_model, keep_own, traffic
from cfljax.round.config import PersonalConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model

if TYPE_CHECKING:
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.schedule import Work
    from cfljax.local.solver import Solver


class OwnModels(NamedTuple):
    """The models that the server has of the clients."""

    # f32[C, d]: the last model of each client; w_0 for those that have not trained
    own: Array
    # bool[C]: has a model of its own that is finite
    drawn: Array
    # f32[C]: the number of training samples of each client
    size: Array
    # f32[d]: w_0
    first: Array
    # f32[m], or f32[C, m] for each client: what the server sends besides models; None: nothing
    shared: Array | None = None

    @property
    def shares(self) -> Array:
        """f32[C]: each trained client's share of the samples of all that have trained; 0 for the
        others."""
        weight = jnp.where(self.drawn, self.size, 0.0)
        return weight / jnp.maximum(weight.sum(), 1.0)

    def mixed(self, weights: Array) -> Array:
        """f32[S, d]: mixtures of the clients' models, with weights f32[S, C]."""
        return weighted_sum(weights, self.own)[0]


Exchanged = tuple[OwnModels, Array | int, Array | int]


@dataclasses.dataclass(frozen=True)
class Peers(PersonalConfig):
    """A participant trains from the model that `start` gives it, and keeps what becomes of that, if
    it is finite. A subclass is a method: its fields are the options, and it overrides the functions
    in which it differs.

    A client is scored with its model; one that has not trained, with the mean by samples of the
    models of all that have. With `sends = False` no model leaves a client, which is then scored
    with the first model.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.trains_once = not cls.own_steps
        if not cls.sends:
            cls.waits = "no updates are sent, so nobody waits"

    def step(self, hyper: Hyper) -> LocalStep:
        """Return the numbers of a local step. Its pull `mu` is to the second model of `start`."""
        return LocalStep.of(hyper)

    def start(
        self, state: OwnModels, ids: Array, own: Array, hyper: Hyper
    ) -> tuple[Array, Array | None]:
        """Return (the models f32[S, d] from which the clients i32[S] train, and those to which they
        are pulled; None: no pull). `own` f32[S, d]: their models."""
        return own, None

    def weights(self, state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> Array:
        """f32[S, C]: the weight of each client's model in the mixtures of the clients i32[S]. Rows
        sum to one."""
        return jax.nn.one_hot(ids, state.drawn.shape[0])

    def first_shared(self, model: Model, federation: Federation) -> Array | None:
        """f32[m] or f32[C, m]: what the server sends besides models at first; None: nothing."""

    def receive(self, ask: Ask, state: OwnModels, begin: Array) -> tuple[Array, Array | None]:
        """Return (the models f32[S, d] from which participants train, what they have at home f32[S,
        m]). `begin`: of `start`."""
        return begin, None if state.shared is None else jnp.tile(state.shared, (len(begin), 1))

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return the local steps, of methods that have steps of their own. What is at home stays
        the same."""
        raise NotImplementedError

    def work(self, work: Work) -> Work:
        """Return the amount of local training, from the run's."""
        return work

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> Exchanged:
        """Return the state for the next round, and how many numbers all participants have received
        and sent besides models. `after`: the state `before` the round with the participants'
        trained models; `arrived` bool[S]: whose are finite; `home`: of `receive`."""
        return after, 0, 0

    def also(self, model: Model, state: OwnModels) -> dict[str, Array]:
        """f32[C, d]: further models of the clients, by name, for the record of their accuracy."""
        return {}

    @property
    def without(self) -> dict[str, str]:
        """Noise and robust rules are for sums of updates."""
        why = "each client gets a mixture of models, not a sum of updates"
        return super().without | (
            dict.fromkeys(("privacy.noise", "robust"), why) if self.sends else {}
        )

    def releases(self, rounds: int) -> tuple[int, int]:
        """Noised sums: none."""
        return 0, 0


def method_of(config: Peers, model: Model, solver: Solver) -> Method[OwnModels]:
    """Return the functions of the method."""
    stepped = solver if type(config).step is Peers.step else solver.with_step(config.step)
    if config.own_steps:
        stepped = stepped.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
    stepped = stepped.with_work(config.work(solver.work))
    train = stepped.fit if config.sends else stepped.train

    def init(
        key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]
    ) -> OwnModels:
        first, size = first_model(key, model), jnp.asarray(federation.train.count, jnp.float32)
        own, nobody = jnp.tile(first, (federation.clients, 1)), jnp.zeros(federation.clients, bool)
        return OwnModels(own, nobody, size, first, config.first_shared(model, federation))

    def round(
        key: Array, state: OwnModels, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[OwnModels, Info]:
        mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        own = state.own[cohort.ids]
        begin, pull = config.start(state, cohort.ids, own, hyper)
        ask = Ask(solver, key, federation, cohort, hyper)
        begin, home = config.receive(ask, state, begin)
        jobs = jobs_from(
            cohort, begin, mine, anchor=pull, anchor_of=None if pull is None else mine, home=home
        )
        updates = train(key, federation, jobs, hyper)
        mixed = keep_own(cohort, updates.delta, begin)
        sane = cohort.mask & usable(updates.delta)
        # A client whose update is broken keeps its model
        into = jnp.where(sane, cohort.ids, federation.clients)
        drawn = state.drawn.at[into].set(True, mode="drop")
        after = state._replace(own=state.own.at[into].set(mixed.new, mode="drop"), drawn=drawn)
        after, *floats = config.exchange(ask, state, after, sane, home)
        # a sum of floats may be just below the number that it stands for
        down, up = (jnp.round(jnp.asarray(each)).astype(jnp.int32) for each in floats)
        sent = ask.bill() if config.sends else traffic(cohort, 0, 0)
        sent = sent._replace(floats_down=down, floats_up=sent.floats_up + up)
        return after, report(federation, cohort, updates, begin, after.own[cohort.ids], mixed, sent)

    def models(state: OwnModels) -> tuple[Array, Array]:
        mine = jnp.arange(state.own.shape[0], dtype=jnp.int32)
        if not config.sends:
            return state.own, mine
        middle = jnp.where(jnp.any(state.drawn), state.mixed(state.shares[None])[0], state.first)
        return jnp.where(state.drawn[:, None], state.own, middle[None]), mine

    def shares(state: OwnModels, federation: Federation, hyper: Hyper) -> Array:
        """f32[C, C]: the mixtures that would be made next; of a client that has not trained the
        mean by samples, or itself."""
        everybody = jnp.arange(state.own.shape[0], dtype=jnp.int32)
        middle = jnp.where(jnp.any(state.drawn), state.shares, jnp.eye(everybody.shape[0]))
        return jnp.where(
            state.drawn[:, None], config.weights(state, everybody, state.own, hyper), middle
        )

    def also(state: OwnModels) -> dict[str, tuple[Array, Array]]:
        return {
            name: (each, jnp.arange(each.shape[0], dtype=jnp.int32))
            for name, each in config.also(model, state).items()
        }

    mixes = type(config).weights is not Peers.weights
    return Method(init, round, models, also=also, chooses=False, shares=shares if mixes else None)
