"""`Peers`: the recipe of methods with a model for each client, which may train near its mixture of
all clients' models."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from cfljax.errors import SpecError
from cfljax.kernels.mix import usable, weighted_sum
from cfljax.lazy import jax, jnp
from cfljax.local.rounds import jobs_from
from cfljax.round.ask import Ask
from cfljax.round.common import first_model
from cfljax.round.config import PersonalConfig
from cfljax.round.rows import RowUpdates, round_of_rows
from cfljax.types import Array, Federation, Hyper, LocalStep, Method, Model

if TYPE_CHECKING:
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.schedule import Work
    from cfljax.local.solver import Solver


class OwnModels(NamedTuple):
    """The state of a method on `Peers` between two rounds: the models that the server has of the
    clients."""

    rows: Array
    """f32[C, d]: the last model of each client; w_0 for those that have not trained."""
    drawn: Array
    """bool[C]: has a model of its own that is finite."""
    size: Array
    """f32[C]: the number of training samples of each client."""
    first: Array
    """f32[d]: w_0."""
    shared: Array | None = None
    """f32[m], or f32[C, m] for each client: what the server sends besides models; None: nothing."""

    @property
    def shares(self) -> Array:
        """f32[C]: the share of each client in the samples of all that have trained; 0 for clients
        that have not."""
        weight = jnp.where(self.drawn, self.size, 0.0)
        return weight / jnp.maximum(weight.sum(), 1.0)

    def mixed(self, weights: Array) -> Array:
        """Return f32[S, d]: mixtures of the clients' models.

        Args:
            weights: f32[S, C] the weight of each client's model in each mixture.
        """
        return weighted_sum(weights, self.rows)[0]


@dataclasses.dataclass(frozen=True)
class Peers(PersonalConfig):
    """A model for each client. A participant trains from the model that `start` gives it, and keeps
    what becomes of that, if it is finite. A subclass is a method: its fields are the options, and
    it overrides what it does differently.

    A client is scored with its model; one that has not trained, with the mean by samples of the
    models of all that have. With `sends = False` no model leaves a client, which is then scored
    with the first model.

    Shapes: C clients, S participants, d parameters. `hyper` has the numbers of the run by name,
    traced f32[] each.

    Example:
        ```python
        class Circle(Peers):
            def weights(self, state, ids, own, hyper):
                return jax.nn.one_hot((ids + 1) % len(state.drawn), len(state.drawn))

            def start(self, state, ids, own, hyper):
                return state.mixed(self.weights(state, ids, own, hyper)), None
        ```
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.trains_once = not cls.own_steps
        if not cls.sends:
            cls.asynchronous_unsupported = "no updates are sent, so nobody waits"

    def step(self, hyper: Hyper) -> LocalStep:
        """Return the numbers of a local step. Its pull `mu` is to the second model of `start`.

        Args:
            hyper: The numbers of the run.
        """
        return LocalStep.of(hyper)

    def start(
        self, state: OwnModels, ids: Array, own: Array, hyper: Hyper
    ) -> tuple[Array, Array | None]:
        """Return (the models f32[S, d] from which clients train, and those to which they are
        pulled; None: no pull).

        Args:
            state: The state before the round.
            ids: i32[S] the clients.
            own: f32[S, d] their own models.
            hyper: The numbers of the run.
        """
        return own, None

    def weights(self, state: OwnModels, ids: Array, own: Array, hyper: Hyper) -> Array:
        """Return f32[S, C]: the weight of each client's model in the mixtures of some clients. Rows
        sum to one.

        Args:
            state: The state before the round.
            ids: i32[S] the clients.
            own: f32[S, d] their own models.
            hyper: The numbers of the run.
        """
        return jax.nn.one_hot(ids, state.drawn.shape[0])

    def first_shared(self, model: Model, federation: Federation) -> Array | None:
        """Return f32[m] or f32[C, m]: what the server sends besides models at first; None: nothing.

        Args:
            model: The network.
            federation: The clients' data.
        """

    def receive(self, ask: Ask, state: OwnModels, begin: Array) -> tuple[Array, Array | None]:
        """Return (the models f32[S, d] from which participants train, what they have at home f32[S,
        m]; None: nothing).

        Args:
            ask: What participants can be asked.
            state: The state before the round.
            begin: f32[S, d] the models of `start`.
        """
        return begin, None if state.shared is None else jnp.tile(state.shared, (len(begin), 1))

    def messages(self, ask: Ask) -> int | Array:
        """Return how many models each participant receives in a round, and sends: i32[S] or an int.

        Args:
            ask: What participants can be asked.
        """
        return 1

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return the local steps, of methods that have steps of their own (`own_steps = True`).
        What is at home stays the same.

        Args:
            model: The network.
            hyper: The numbers of the run.
            rule: The run's optimiser.
        """
        raise NotImplementedError

    def work(self, work: Work) -> Work:
        """Return the amount of local training.

        Args:
            work: The run's.
        """
        return work

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> OwnModels:
        """Return the state for the next round. What participants have received and have sent
        besides models is billed by `ask.download` and `ask.upload`.

        Args:
            ask: What participants can be asked.
            before: The state before the round.
            after: The same with the participants' trained models.
            arrived: bool[S] whose models are finite.
            home: f32[S, m] what participants had at home, of `receive`; None: nothing.
        """
        return after

    def also(self, model: Model, state: OwnModels) -> dict[str, Array]:
        """Return further models of the clients, f32[C, d] each, by name, whose accuracy is
        recorded.

        Args:
            model: The network.
            state: The state after a round.
        """
        return {}

    @property
    def without(self) -> dict[str, str]:
        """Refuse noise and robust rules, which are for sums of updates."""
        why = "each client gets a mixture of models, not a sum of updates"
        return super().without | (
            dict.fromkeys(("privacy.noise", "robust"), why) if self.sends else {}
        )

    def releases(self, rounds: int) -> tuple[int, int]:
        """Return the numbers of noised sums of a run: none, as clients get no sums.

        Args:
            rounds: How many rounds the run has.
        """
        return 0, 0


def method_of(config: Peers, model: Model, solver: Solver) -> Method[OwnModels]:
    """Return the functions of the method."""
    trainer = solver if type(config).step is Peers.step else solver.with_step(config.step)
    if config.own_steps:
        trainer = trainer.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
    trainer = trainer.with_work(config.work(solver.work))

    def init(
        key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]
    ) -> OwnModels:
        first = first_model(key, model)
        return OwnModels(
            rows=jnp.tile(first, (federation.clients, 1)),
            drawn=jnp.zeros(federation.clients, bool),
            size=jnp.asarray(federation.train.count, jnp.float32),
            first=first,
            shared=config.first_shared(model, federation),
        )

    def train(ask: Ask, state: OwnModels, rows: Array) -> RowUpdates:
        begin, pull = config.start(state, ask.cohort.ids, rows, ask.hyper)
        if config.sends:
            messages = config.messages(ask)
            begin = ask.download(begin, each=messages)
            ask.upload(each=messages)
        begin, home = config.receive(ask, state, begin)
        mine = jnp.arange(begin.shape[0], dtype=jnp.int32)
        pull_of = None if pull is None else mine
        jobs = jobs_from(ask.cohort, begin, mine, anchor=pull, anchor_of=pull_of, home=home)
        # Models that stay with the clients are neither attacked nor compressed nor noised
        fit = trainer.fit if config.sends else trainer.train
        updates = fit(ask.key, ask.federation, jobs, ask.hyper)
        return RowUpdates(jobs, updates, begin, updates.delta)

    def merge(
        ask: Ask, before: OwnModels, after: OwnModels, done: RowUpdates
    ) -> tuple[OwnModels, Array]:
        arrived = ask.cohort.mask & usable(done.change)
        after = config.exchange(ask, before, after, arrived, done.jobs.home)
        if not isinstance(after, OwnModels):
            raise SpecError(
                f"{type(config).__qualname__}.exchange returns the state alone now: count numbers "
                "by ask.download and ask.upload"
            )
        # The report compares with the models that clients have at the end of the exchange
        return after, after.rows[ask.cohort.ids]

    def models(state: OwnModels) -> tuple[Array, Array]:
        mine = jnp.arange(state.rows.shape[0], dtype=jnp.int32)
        if not config.sends:
            return state.rows, mine
        mean = jnp.where(jnp.any(state.drawn), state.mixed(state.shares[None])[0], state.first)
        return jnp.where(state.drawn[:, None], state.rows, mean[None]), mine

    def shares(state: OwnModels, federation: Federation, hyper: Hyper) -> Array:
        """Return f32[C, C]: the weights of the mixtures that would be made next. A client that has
        not trained has the mean by samples, or before the first round itself alone."""
        everybody = jnp.arange(state.rows.shape[0], dtype=jnp.int32)
        weights = config.weights(state, everybody, state.rows, hyper)
        nobody = jnp.eye(everybody.shape[0])
        mean = jnp.where(jnp.any(state.drawn), state.shares, nobody)
        return jnp.where(state.drawn[:, None], weights, mean)

    def also(state: OwnModels) -> dict[str, tuple[Array, Array]]:
        return {
            name: (each, jnp.arange(each.shape[0], dtype=jnp.int32))
            for name, each in config.also(model, state).items()
        }

    round = round_of_rows(solver, train, merge)
    mixes = type(config).weights is not Peers.weights
    return Method(init, round, models, also=also, chooses=False, shares=shares if mixes else None)
