"""`Controlled`: the recipe of methods with one global model whose clients correct their steps by a
vector of their own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from cfljax import keys
from cfljax.kernels.mix import Aggregate, Rule, mix_updates, usable, weights_by
from cfljax.lazy import jnp
from cfljax.local.attacks import attackers
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from, sizes
from cfljax.round.ask import Ask
from cfljax.round.common import first_model
from cfljax.round.config import PersonalConfig
from cfljax.types import (
    Array,
    Cohort,
    Federation,
    Hyper,
    Info,
    Jobs,
    LocalStep,
    Method,
    Model,
    Updates,
)

if TYPE_CHECKING:
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.solver import Solver


class Vectors(NamedTuple):
    """The state of a method on `Controlled` between two rounds."""

    # f32[1, d]: w
    models: Array
    # f32[1, d]: c, the server's control vector, a mean over all clients
    control: Array
    # f32[C, d]: c_i, the control vector of each client; zeros until it has trained
    own: Array
    # i32[C]: zeros, the one model of all
    labels: Array


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


def method_of(config: Controlled, model: Model, solver: Solver) -> Method[Vectors]:
    """Return the functions of the method with these options."""
    solver.need_no_statistics("a step of the server with control vectors")
    if config.own_steps:
        trainer = solver.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))
    else:
        trainer = solver.with_step(config.step)

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Vectors:
        models = first_model(key, model)[None]
        return Vectors(
            models,
            control=jnp.zeros_like(models),
            own=jnp.zeros((federation.clients, model.size)),
            labels=jnp.zeros(federation.clients, jnp.int32),
        )

    def round(
        key: Array, state: Vectors, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[Vectors, Info]:
        ask = Ask(solver, key, federation, cohort, hyper)
        # One model for all
        which = jnp.zeros_like(cohort.ids)
        own = state.own[cohort.ids]
        arrived = ask.download(state.models)
        start = arrived[which]
        if config.own_steps:
            control = ask.download(state.control)
            jobs = jobs_from(cohort, arrived, which, home=control[which] - own)
        else:
            mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
            jobs = jobs_from(cohort, arrived, which, anchor=start - own, anchor_of=mine)
        updates = trainer.train(key, federation, jobs, hyper)
        # Control vectors and updates have noise of their own
        control_key = keys.fold(key, "control")
        sent = _send(config, solver, (key, control_key), federation, jobs, updates, own, hyper)
        # An update, and the change of c_i
        ask.upload(each=2 if config.own_steps else 1)

        mixed, new_control = _step_server(
            config,
            rules=(solver.rule(key, hyper), solver.rule(control_key, hyper)),
            state=state,
            federation=federation,
            cohort=cohort,
            sent=sent,
            hyper=hyper,
        )

        # The clients: one whose message is not finite, or padding, keeps its c_i
        new = own + own_view_of_change(solver, federation, cohort, hyper, sent.meant, sent.change)
        vectors = cohort.write(state.own, new, sent.finite)
        lost = jnp.sum(cohort.mask & ~sent.finite, dtype=jnp.int32)
        info = report(
            federation,
            cohort,
            updates._replace(delta=sent.delta, home=None),
            start,
            mixed.new[which],
            mixed._replace(nonfinite=lost),
            ask.bill(),
        )
        return Vectors(mixed.new, new_control, vectors, state.labels), info

    def models(state: Vectors) -> tuple[Array, Array]:
        return state.models, state.labels

    return Method(init, round, models)


def _step_server(
    config: Controlled,
    rules: tuple[Rule, Rule],
    state: Vectors,
    federation: Federation,
    cohort: Cohort,
    sent: _Sent,
    hyper: Hyper,
) -> tuple[Aggregate, Array]:
    """Average what the server has received, and return its new model and c f32[1, d].

    Args:
      config: The method's options.
      rules: How updates are averaged, and changes of control vectors, with noise of their own.
      state: The state before the round.
      federation: The clients' data.
      cohort: The participants.
      sent: What they have sent.
      hyper: The numbers of the run.
    """
    rule, control_rule = rules
    # One model for all
    which = jnp.zeros_like(cohort.ids)
    size = sizes(federation, cohort)
    mix = weights_by(which, cohort.mask, size, len(state.models), config.average)
    share = client_weights(state, federation, cohort, config.average)
    # From zeros, so that `moved.new` is the mean update
    moved = mix_updates(mix, sent.delta, jnp.zeros_like(state.models), rule)
    # How much of the weight of all clients takes part
    drawn = share.sum(axis=1, keepdims=True)
    if config.own_steps:
        control = mix_updates(share, sent.change, state.control, control_rule).new
    else:
        # The change of c_i is the update, so the mean of the changes is the mean update times the
        # weight of those who have sent one
        control = state.control + drawn * moved.new
    moves = drawn > 0
    if rule.noise is None:
        # With noise, a model that stays would reveal that no update was finite
        moves = moves & ~moved.lost[:, None]
    stepped = config.move(state.models, moved.new, control, hyper)
    return moved._replace(new=jnp.where(moves, stepped, state.models)), control


class _Sent(NamedTuple):
    """What the server has received of the participants, and what they meant to send."""

    # f32[S, d]: the updates as they arrive; NaN if either message is not finite
    delta: Array
    # f32[S, d]: the changes of c_i as they arrive, NaN as above; without own steps the updates
    change: Array
    # f32[S, d]: the changes as they were meant, before attacks and compression
    meant: Array
    # bool[S]: participants whose messages are finite
    finite: Array


def _send(
    config: Controlled,
    solver: Solver,
    message_keys: tuple[Array, Array],
    federation: Federation,
    jobs: Jobs,
    updates: Updates,
    own: Array,
    hyper: Hyper,
) -> _Sent:
    """Send the updates, and with own steps the changes of the control vectors.

    Args:
      config: The method's options.
      solver: Its links.
      message_keys: The keys of updates and of changes, with different draws.
      federation: The clients' data.
      jobs: What the participants have trained.
      updates: The result.
      own: f32[S, d] their c_i before the round.
      hyper: The numbers of the run.
    """
    of_updates, of_changes = message_keys
    delta = solver.send(of_updates, federation, jobs, updates.delta, hyper)
    meant = updates.delta
    change = delta
    finite = jobs.mask & usable(delta)
    if config.own_steps:
        assert updates.home is not None
        # A client without a step keeps its c_i
        meant = jnp.where((updates.steps > 0)[:, None], updates.home - own, 0.0)
        change = solver.send(of_changes, federation, jobs, meant, hyper)
        finite = finite & usable(change)
    # Neither message counts if one of them is not finite, else w and c would part
    broken = (jobs.mask & ~finite)[:, None]
    return _Sent(
        jnp.where(broken, jnp.nan, delta), jnp.where(broken, jnp.nan, change), meant, finite
    )


def client_weights(state: Vectors, federation: Federation, cohort: Cohort, average: str) -> Array:
    """Return the weight of each participant among all clients that train in some round, f32[1, S],
    by their samples or equally (`average`)."""
    size = federation.train.count.astype(jnp.float32)
    of_all = weights_by(state.labels, federation.trains, size, len(state.models), average)
    return jnp.where(cohort.mask, of_all[:, cohort.ids], 0.0)


def own_view_of_change(
    solver: Solver,
    federation: Federation,
    cohort: Cohort,
    hyper: Hyper,
    meant: Array,
    arrived: Array,
) -> Array:
    """Return the changes f32[S, d] by which participants move their own c_i. A client takes what
    has arrived of its message, so that what compression leaves out stays to be sent. But an
    attacker goes on with what it would have sent honestly.

    Args:
      solver: Its links, with the attack.
      federation: The clients' data.
      cohort: The participants.
      hyper: The numbers of the run.
      meant: f32[S, d] the changes before attacks and compression.
      arrived: f32[S, d] the changes as the server has them.
    """
    attack = solver.sending.attack
    if attack is None or not attack.acts(hyper):
        return arrived
    lies = attackers(attack, hyper, federation)[cohort.ids]
    return jnp.where(lies[:, None], meant, arrived)
