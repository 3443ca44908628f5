"""`AtHome`: the recipe of methods with one global model, beside which something stays with each
client."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cfljax.kernels.mix import mix_updates
from cfljax.lazy import jnp
from cfljax.local.averages import averages, numbers_sent
from cfljax.local.reports import mean_over
from cfljax.local.rounds import jobs_from
from cfljax.round.ask import Ask
from cfljax.round.common import first_model
from cfljax.round.config import OF_GLOBAL, PersonalConfig
from cfljax.round.rows import RowUpdates, round_of_rows
from cfljax.types import Array, Federation, Hyper, LocalStep, Method, Model

if TYPE_CHECKING:
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.solver import Solver


class AtHomeState(NamedTuple):
    """The state of a method on `AtHome` between two rounds."""

    w: Array
    """f32[1, d]: the global model."""
    rows: Array
    """f32[C, m]: what stays with each client."""
    drawn: Array
    """bool[C]: whether it has been trained."""


@dataclasses.dataclass(frozen=True)
class AtHome(PersonalConfig):
    """FedAvg of a global model w, and something that stays with each client (at home). A subclass
    is a method: its fields are the options, and it overrides what it does differently.

    Both are trained in the same steps (`steps`), or what is at home as a model of its own, from
    itself and pulled to w by `pull`. What is not finite is left out, at home and on the server. A
    client is scored with its `personal` model, and the accuracy of w is the diagnostic
    `accuracy_global`; with `own = False` it is scored with w. A client that has not been drawn yet
    has what all begin with at home.

    Shapes: C clients, S participants, d parameters, m numbers at home. `hyper` has the numbers of
    the run by name, traced f32[] each.

    Example:
        ```python
        @dataclasses.dataclass(frozen=True)
        class Ditto(AtHome):
            lam: float = option(0.1, "strength of the pull", low=0.0, traced=True)

            def pull(self, hyper):
                return hyper["lam"]
        ```
    """

    average = "samples"
    """The weights of the participants: "samples", "uniform" or "nova". Methods have an option of
    this name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.server_models, cls.trains_once = "w", False
        if cls.own:
            cls.diagnostics = OF_GLOBAL | cls.diagnostics

    def first_home(self, w: Array, solver: Solver, federation: Federation, hyper: Hyper) -> Array:
        """Return f32[m] or f32[C, m]: what clients have at home at first.

        Args:
            w: f32[d] the first model.
            solver: The solver of the run.
            federation: The clients' data.
            hyper: The numbers of the run.
        """
        return w

    def receive(self, ask: Ask, state: AtHomeState) -> Array:
        """Return f32[S, m]: what participants have at home when w has arrived, before the `steps`.

        Args:
            ask: What participants can be asked.
            state: The state before the round.
        """
        return state.rows[ask.cohort.ids]

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return the local steps on both; without this function they are trained one after the
        other, on the same batches.

        Args:
            model: The network.
            hyper: The numbers of the run.
            rule: The run's optimiser.
        """
        raise NotImplementedError

    def pull(self, hyper: Hyper) -> Array | None:
        """Return f32[]: the strength of the pull of the model at home to w, where both are trained
        one after the other; None: there is no pull.

        Args:
            hyper: The numbers of the run.
        """
        return None

    def move(self, w: Array, mean: Array, hyper: Hyper) -> Array:
        """Return f32[1, d]: the global model after a round.

        Args:
            w: f32[1, d] the global model before it.
            mean: f32[1, d] the mean of the participants' models.
            hyper: The numbers of the run.
        """
        return mean

    def personal(self, state: AtHomeState) -> Array:
        """Return f32[C, d]: the model that each client is scored with.

        Args:
            state: The state after a round.
        """
        return jnp.where(state.drawn[:, None], state.rows, state.w)

    def compute_diagnostics(
        self, w: Array, home: Array, mean: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """Return further quantities of the round for the history, by name.

        Args:
            w: f32[1, d] the new global model.
            home: f32[S, m] what participants have at home.
            mean: (f32[S]) -> f32[]: the mean over the participants.
        """
        return {}


def method_of(config: AtHome, model: Model, solver: Solver) -> Method[AtHomeState]:
    """Return the functions of the method."""
    together = type(config).steps is not AtHome.steps
    trainer = solver
    if together:
        trainer = solver.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
    alone = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=config.pull(hyper)))

    def init(
        key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]
    ) -> AtHomeState:
        w = first_model(key, model)
        rows = config.first_home(w, solver, federation, hyper)
        rows = jnp.broadcast_to(rows, (federation.clients, rows.shape[-1]))
        return AtHomeState(w[None], rows, jnp.zeros(federation.clients, bool))

    def train(ask: Ask, state: AtHomeState, rows: Array) -> RowUpdates:
        everyone = jnp.zeros_like(ask.cohort.ids)
        w = ask.download(state.w)
        held = config.receive(ask, state) if together else None
        jobs = jobs_from(ask.cohort, w, everyone, home=held)
        updates = trainer.fit(ask.key, ask.federation, jobs, ask.hyper)
        ask.upload()
        ask.upload(numbers_sent(config.average))
        if together:
            assert updates.home is not None
            return RowUpdates(jobs, updates, rows, updates.home - rows)
        # The same key, so the same batches as the global model's; nothing of it is sent
        mine = jnp.arange(everyone.shape[0], dtype=jnp.int32)
        own_jobs = jobs_from(ask.cohort, rows, mine, anchor=w, anchor_of=everyone)
        return RowUpdates(jobs, updates, rows, ask.train(alone, ask.key, own_jobs).delta)

    def merge(
        ask: Ask, before: AtHomeState, after: AtHomeState, done: RowUpdates
    ) -> tuple[AtHomeState, Array]:
        cohort = ask.cohort
        everyone = jnp.zeros_like(cohort.ids)
        mix = averages(trainer, ask.federation, cohort, everyone, 1, config.average, ask.hyper)
        rule = solver.rule(ask.key, ask.hyper)
        mean = mix_updates(mix, done.updates.delta, before.w, rule).new
        w = config.move(before.w, mean, ask.hyper)

        def mean_of(each: Array) -> Array:
            return mean_over(cohort, cohort.mask, each)

        ask.show(**config.compute_diagnostics(w, after.rows[cohort.ids], mean_of))
        return after._replace(w=w), w[everyone]

    def global_model(state: AtHomeState) -> tuple[Array, Array]:
        return state.w, jnp.zeros(state.drawn.shape, jnp.int32)

    def models(state: AtHomeState) -> tuple[Array, Array]:
        own = config.personal(state)
        return own, jnp.arange(own.shape[0], dtype=jnp.int32)

    round = round_of_rows(solver, train, merge)
    if not config.own:
        return Method(init, round, global_model)

    def also(state: AtHomeState) -> dict[str, tuple[Array, Array]]:
        return {"global": global_model(state)}

    return Method(init, round, models, also=also, chooses=False)
