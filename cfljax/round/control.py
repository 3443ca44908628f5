"""`Controlled`: the recipe of methods with one global model whose clients correct their steps by a
vector of their own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from cfljax import keys
from cfljax.kernels.mix import mix_updates, usable, weights_by
from cfljax.lazy import jnp
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from, sizes
from cfljax.local.send import attackers
from cfljax.round.common import first_model, traffic
from cfljax.round.config import PersonalConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model

if TYPE_CHECKING:
    from cfljax.local.optimiser import StepRule
    from cfljax.local.own_steps import OwnSteps
    from cfljax.local.solver import Solver


class Vectors(NamedTuple):
    """The state of these methods."""

    models: Array  # f32[1, d]: w
    control: Array  # f32[1, d]: c, the server's control vector, a mean over all clients
    own: Array  # f32[C, d]: c_i, the control vector of each client; zeros until it has trained
    labels: Array  # i32[C]: zeros, the one model of all


@dataclasses.dataclass(frozen=True)
class Controlled(PersonalConfig):
    """FedAvg of a global model w, where each client keeps a vector c_i and the server their mean c
    over all clients that train in some round. A subclass is a method: its fields are the options,
    and it overrides the functions in which it differs.

    With `steps` participants correct their steps by c − c_i, and send the change of c_i beside the
    update. Without it they are pulled to w − c_i by the strength `mu` of `step`, and their c_i
    changes by the update. Where an update or a change is not finite, neither counts. The server's
    step is `move`. Clients are scored with w.
    """

    own, places_unlabelled = False, True
    own_server = True
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
        """Return the local steps. Before them c − c_i is at home, and after them the new c_i."""
        raise NotImplementedError

    def move(self, models: Array, mean: Array, control: Array, hyper: Hyper) -> Array:
        """f32[1, d]: the model after a round, from that before it, the mean update and the new
        c."""
        return models + mean

    @property
    def no_feedback(self) -> str:
        """Control vectors hold what is dropped, or are sent."""
        if self.own_steps:
            return "its control vectors contain dropped numbers already"
        return "its h_i contain dropped numbers already"

    def releases(self, rounds: int) -> tuple[int, int]:
        """Count the sums of updates, and of control vectors."""
        return (2 if self.own_steps else 1) * rounds, 0


def method_of(config: Controlled, model: Model, solver: Solver) -> Method[Vectors]:
    """Return the functions of the method with these options."""
    two = config.own_steps
    solver.need_no_statistics("a step of the server with control vectors")
    trainer = solver.with_step(config.step)
    if two:
        trainer = solver.with_own_steps(lambda hyper, rule: config.steps(model, hyper, rule))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Vectors:
        models, clients = first_model(key, model)[None], federation.clients
        return Vectors(
            models,
            jnp.zeros_like(models),
            jnp.zeros((clients, model.size)),
            jnp.zeros(clients, jnp.int32),
        )

    def round(
        key: Array, state: Vectors, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[Vectors, Info]:
        which, own = jnp.maximum(state.labels[cohort.ids], 0), state.own[cohort.ids]
        start, mine = state.models[which], jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        more = (
            {"home": state.control[which] - own}
            if two
            else {"anchor": start - own, "anchor_of": mine}
        )
        jobs = jobs_from(cohort, state.models, which, **more)
        updates = trainer.train(key, federation, jobs, hyper)
        meant, beside = (
            updates.delta,
            keys.fold(key, "control"),
        )  # its draws differ from the update's
        sent = [solver.send(key, federation, jobs, updates.delta, hyper)]
        if two:
            assert updates.home is not None
            meant = jnp.where((updates.steps > 0)[:, None], updates.home - own, 0.0)
            sent.append(solver.send(beside, federation, jobs, meant, hyper))
        sane = cohort.mask & jnp.stack([usable(each) for each in sent]).all(axis=0)
        delta, *_, change = (
            jnp.where((cohort.mask & ~sane)[:, None], jnp.nan, each) for each in (sent[0], *sent)
        )

        mix = weights_by(
            which, cohort.mask, sizes(federation, cohort), state.models.shape[0], config.average
        )
        share, rule = shares(state, federation, cohort, config.average), solver.rule(key, hyper)
        moved = mix_updates(mix, delta, jnp.zeros_like(state.models), rule)
        drawn = share.sum(axis=1, keepdims=True)
        if two:
            control = mix_updates(share, change, state.control, solver.rule(beside, hyper)).new
        else:
            control = state.control + drawn * moved.new
        moves = drawn > 0
        if (
            rule.noise is None
        ):  # with noise, a model that stays would reveal that no update was finite
            moves = moves & ~moved.lost[:, None]
        models = jnp.where(
            moves, config.move(state.models, moved.new, control, hyper), state.models
        )

        into = jnp.where(sane, cohort.ids, federation.clients)
        kept = state.own.at[into].set(
            own + known(solver, federation, cohort, hyper, meant, change), mode="drop"
        )
        mixed = moved._replace(new=models, nonfinite=jnp.sum(cohort.mask & ~sane, dtype=jnp.int32))
        seen = updates._replace(delta=delta, home=None)
        info = report(
            federation,
            cohort,
            seen,
            start,
            models[which],
            mixed,
            traffic(cohort, len(sent), len(sent)),
        )
        return Vectors(models, control, kept, state.labels), info

    models = lambda state: (state.models, state.labels)  # noqa: E731
    return Method(init, round, models)


def shares(state: Vectors, federation: Federation, cohort: Cohort, average: str) -> Array:
    """f32[1, S]: the weight of each participant among all clients that train in some
    round, by their samples or equally (`average`)."""
    size = federation.train.count.astype(jnp.float32)
    of_all = weights_by(state.labels, federation.trains, size, state.models.shape[0], average)
    return jnp.where(cohort.mask, of_all[:, cohort.ids], 0.0)


def known(
    solver: Solver,
    federation: Federation,
    cohort: Cohort,
    hyper: Hyper,
    meant: Array,
    claimed: Array,
) -> Array:
    """f32[S, d]: what each participant itself counts as sent, of what it meant and what arrived.
    That is what arrived, so that what compression leaves out stays to be sent; but an attacker goes
    on with what it would have sent honestly."""
    if solver.sending.attack not in ("sign_flip", "noise"):
        return claimed
    lies = attackers(solver.sending, hyper, federation)[cohort.ids]
    return jnp.where(lies[:, None], meant, claimed)
