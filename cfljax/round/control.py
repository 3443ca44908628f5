"""`Controlled`: the recipe of methods with one global model whose clients correct their steps by a
vector of their own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from cfljax import keys
from cfljax.kernels.mix import mix_updates, usable, weights_by
from cfljax.lazy import jnp
from cfljax.local.attacks import attackers
from cfljax.local.rounds import jobs_from
from cfljax.round.ask import Ask
from cfljax.round.common import first_model
from cfljax.round.config import PersonalConfig
from cfljax.round.rows import RowUpdates, round_of_rows
from cfljax.types import Array, Federation, Hyper, Jobs, LocalStep, Method, Model

if TYPE_CHECKING:
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.solver import Solver


class ControlledState(NamedTuple):
    """The state of a method on `Controlled` between two rounds."""

    # f32[1, d]: w
    models: Array
    # f32[1, d]: c, the server's control vector, a mean over all clients
    control: Array
    # f32[C, d]: c_i, the control vector of each client; zeros until it has trained
    rows: Array
    # bool[C]: whether it has been trained
    drawn: Array


@dataclasses.dataclass(frozen=True)
class Controlled(PersonalConfig):
    """FedAvg of a global model w, where each client keeps a vector c_i and the server their mean c
    over all clients that train in some round. A subclass is a method: its fields are the options,
    and it overrides what it does differently.

    With `steps` participants correct their steps by c − c_i, and send the change of c_i beside the
    update. Without it they are pulled to w − c_i by the strength `mu` of `step`, and their c_i
    changes by the update. Where an update or a change is not finite, neither counts. The server's
    step is `move`. Clients are scored with w.
    """

    own, places_unlabelled = False, True
    server_step_is_own = True
    average = "uniform"
    """The weights of the participants, and of the clients in c: "samples" or "uniform". Methods may
    have it as an option."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.own_steps = cls.steps is not Controlled.steps
        cls.trains_once = not cls.own_steps

    def step(self, hyper: Hyper) -> LocalStep:
        """Return the numbers of a local step."""
        return LocalStep.of(hyper)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return the local steps. They begin with c − c_i at home, and end with the new c_i
        there."""
        raise NotImplementedError

    def move(self, models: Array, mean: Array, control: Array, hyper: Hyper) -> Array:
        """Return f32[1, d]: the model after a round.

        Args:
          models: f32[1, d] w before the round.
          mean: f32[1, d] the mean update of the participants.
          control: f32[1, d] c after the round.
          hyper: The numbers of the run.
        """
        return models + mean

    @property
    def no_feedback(self) -> str:
        """Say why `train.compress` cannot keep what it drops: the control vectors hold it."""
        if self.own_steps:
            return "its control vectors contain dropped numbers already"
        return "its h_i contain dropped numbers already"

    def releases(self, rounds: int) -> tuple[int, int]:
        """Count the noised sums of a run: of updates, and of control vectors."""
        return (2 if self.own_steps else 1) * rounds, 0


def method_of(config: Controlled, model: Model, solver: Solver) -> Method[ControlledState]:
    """Return the functions of the method with these options."""
    solver.need_no_statistics("a step of the server with control vectors")
    if config.own_steps:
        trainer = solver.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
    else:
        trainer = solver.with_step(config.step)

    def init(
        key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]
    ) -> ControlledState:
        models = first_model(key, model)[None]
        return ControlledState(
            models,
            control=jnp.zeros_like(models),
            rows=jnp.zeros((federation.clients, model.size)),
            drawn=jnp.zeros(federation.clients, bool),
        )

    def make_jobs(ask: Ask, state: ControlledState, rows: Array) -> Jobs:
        # One model for all
        which = jnp.zeros_like(ask.cohort.ids)
        w = ask.download(state.models)
        if config.own_steps:
            control = ask.download(state.control)
            return jobs_from(ask.cohort, w, which, home=control[which] - rows)
        mine = jnp.arange(which.shape[0], dtype=jnp.int32)
        return jobs_from(ask.cohort, w, which, anchor=w[which] - rows, anchor_of=mine)

    def train(ask: Ask, state: ControlledState, rows: Array) -> RowUpdates:
        jobs = make_jobs(ask, state, rows)
        updates = trainer.train(ask.key, ask.federation, jobs, ask.hyper)
        meant = updates.delta
        delta = change = solver.send(ask.key, ask.federation, jobs, meant, ask.hyper)
        ask.upload()
        if config.own_steps:
            assert updates.home is not None
            # A client without a step keeps its c_i
            meant = jnp.where((updates.steps > 0)[:, None], updates.home - rows, 0.0)
            change = solver.send(_control_key(ask), ask.federation, jobs, meant, ask.hyper)
            ask.upload()
        # Neither message counts if one of them is not finite, else w and c would part
        broken = (ask.cohort.mask & ~(usable(delta) & usable(change)))[:, None]
        delta, change, meant = (jnp.where(broken, jnp.nan, each) for each in (delta, change, meant))
        seen = own_view_of_change(ask, meant, change)
        return RowUpdates(jobs, updates._replace(delta=delta), rows, seen, change)

    def merge(
        ask: Ask, before: ControlledState, after: ControlledState, done: RowUpdates
    ) -> tuple[ControlledState, Array]:
        rule = solver.rule(ask.key, ask.hyper)
        # One model for all
        which = jnp.zeros_like(ask.cohort.ids)
        mix = weights_by(which, ask.cohort.mask, ask.sizes, len(before.models), config.average)
        share = client_weights(ask, config.average)
        # From zeros, so that `moved.new` is the mean update
        moved = mix_updates(mix, done.updates.delta, jnp.zeros_like(before.models), rule)
        # How much of the weight of all clients takes part
        drawn = share.sum(axis=1, keepdims=True)
        if config.own_steps:
            assert done.more is not None
            control_rule = solver.rule(_control_key(ask), ask.hyper)
            control = mix_updates(share, done.more, before.control, control_rule).new
        else:
            # The change of c_i is the update, so the mean of the changes is the mean update times
            # the weight of those who have sent one
            control = before.control + drawn * moved.new
        moves = drawn > 0
        if rule.noise is None:
            # With noise, a model that stays would reveal that no update was finite
            moves = moves & ~moved.lost[:, None]
        stepped = config.move(before.models, moved.new, control, ask.hyper)
        models = jnp.where(moves, stepped, before.models)
        return after._replace(models=models, control=control), models[which]

    def models(state: ControlledState) -> tuple[Array, Array]:
        return state.models, jnp.zeros(state.drawn.shape, jnp.int32)

    return Method(init, round_of_rows(solver, train, merge), models)


def _control_key(ask: Ask) -> Array:
    """Return the key of messages with changes of control vectors, and of the noise on their sum,
    which are not those of updates."""
    return keys.fold(ask.key, "control")


def client_weights(ask: Ask, average: str) -> Array:
    """Return the weight of each participant among all clients that train in some round, f32[1, S],
    by their samples or equally (`average`)."""
    federation, cohort = ask.federation, ask.cohort
    size = federation.train.count.astype(jnp.float32)
    in_one_cluster = jnp.zeros(federation.clients, jnp.int32)
    of_all = weights_by(in_one_cluster, federation.trains, size, 1, average)
    return jnp.where(cohort.mask, of_all[:, cohort.ids], 0.0)


def own_view_of_change(ask: Ask, meant: Array, arrived: Array) -> Array:
    """Return the changes f32[S, d] by which participants move their own c_i. A client takes what
    has arrived of its message, so that what compression leaves out stays to be sent. But an
    attacker goes on with what it would have sent honestly.

    Args:
      ask: The participants.
      meant: f32[S, d] the changes before attacks and compression.
      arrived: f32[S, d] the changes as the server has them.
    """
    attack = ask.solver.sending.attack
    if attack is None or not attack.acts(ask.hyper):
        return arrived
    lies = attackers(attack, ask.hyper, ask.federation)[ask.cohort.ids]
    return jnp.where(lies[:, None], meant, arrived)
