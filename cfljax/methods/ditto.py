"""Ditto (Li et al. 2021): FedAvg, plus a personal model per client with a proximal pull lam/2 · ‖v_i − w‖² towards the global
model w that the client was sent. The personal model is scored; the accuracy of w is the diagnostic `accuracy_global`.

Both models are trained in the same round on the same stream of batches, for the run's epochs or steps, so that lam = 0 is local
training and the global model is FedAvg's. A client that holds no training data, or has not been drawn yet, has no personal model
and is scored with w.

Readings:
- Work of the personal model. Paper: its own number of steps and its own rate. Here: those of the global one's training, on the same
  batches. Option: none.
- Weights of the global mean. Paper: by samples or uniform, which its program's default is. Here: by samples. Option: `average =
  "uniform"`.
- lam. Paper: one number; its program also tries 0.1, 1 and 2 for each client by validation. Here: one number. Option: `lam`.

Communication per participant and round: one model down, one update up. The personal model stays where it is.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.kernels.mix import mix_updates, usable
from cfljax.lazy import jnp
from cfljax.local.averages import averages, with_lengths
from cfljax.local.reports import mean_over, report
from cfljax.local.rounds import jobs_from
from cfljax.local.solver import Solver
from cfljax.methods import fedavg
from cfljax.methods.shared.common import first_model, keep_own, traffic
from cfljax.methods.shared.config import PersonalConfig
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, LocalStep, Method, Model

PAPER = "Li et al. 2021"


@dataclasses.dataclass(frozen=True)
class Config(PersonalConfig, fedavg.Config):
    """Options of Ditto."""

    trains_once = False
    served = "w"

    lam: float = option(0.1, "strength of the pull of personal models to the global one", low=0.0, traced=True)


class State(NamedTuple):
    """The global model, and those that stay with the clients."""

    w: Array
    """f32[1, d]."""
    personal: Array
    """f32[C, d]."""
    drawn: Array
    """bool[C]: has trained its personal model."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """Ditto: FedAvg, and personal models pulled towards it."""
    pulling = solver.with_step(lambda hyper: LocalStep.of(hyper)._replace(mu=hyper["lam"]))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        w = first_model(key, model)[None]
        return State(w, jnp.tile(w, (federation.clients, 1)), jnp.zeros(federation.clients, bool))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        everyone = jnp.zeros_like(cohort.ids)
        mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        w, own = state.w, state.personal[cohort.ids]
        updates = solver.fit(key, federation, jobs_from(cohort, w, everyone), hyper)
        pulled = jobs_from(cohort, own, mine, anchor=w, anchor_of=everyone)
        personal = pulling.train(key, federation, pulled, hyper)
        mix = averages(solver, federation, cohort, everyone, 1, config.average, hyper)
        mixed = mix_updates(mix, updates.delta, w, solver.rule(key, hyper))
        kept = keep_own(cohort, personal.delta, own)
        either = cohort.mask & ~(usable(updates.delta) & usable(personal.delta))
        mixed = mixed._replace(nonfinite=jnp.sum(either, dtype=jnp.int32))
        drawn = state.drawn.at[cohort.ids].max(cohort.mask)
        state = State(mixed.new, state.personal.at[cohort.ids].set(kept.new), drawn)
        distance = mean_over(cohort, cohort.mask, jnp.linalg.norm(kept.new - mixed.new, axis=1))
        before, after = w[everyone], mixed.new[everyone]
        info = report(
            federation,
            cohort,
            updates,
            before,
            after,
            mixed,
            with_lengths(traffic(cohort), cohort, config.average),
            personal_distance=distance,
        )
        return state, info

    def models(state: State) -> tuple[Array, Array]:
        own = jnp.where(state.drawn[:, None], state.personal, state.w)
        return own, jnp.arange(own.shape[0], dtype=jnp.int32)

    def also(state: State) -> dict[str, tuple[Array, Array]]:
        return {"global": (state.w, jnp.zeros(state.drawn.shape, jnp.int32))}

    return Method(init, round, models, also=also, chooses=False)


ditto = Entry(Config, make)
