"""A global model whose participants keep something at home, trained in the same steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.kernels.mix import mix_updates, usable
from cfljax.lazy import jnp
from cfljax.local.averages import averages
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from
from cfljax.local.solver import Solver
from cfljax.round.common import keep_own, traffic
from cfljax.types import Array, Cohort, Federation, Hyper, Info


class AtHome(NamedTuple):
    """The state of a method with a global model and something that stays with each client."""

    w: Array
    """f32[1, d] the global model."""
    home: Array
    """f32[C, m]: what stays with each client."""
    drawn: Array
    """bool[C]: it has been trained."""


def at_home(w: Array, home: Array, clients: int) -> AtHome:
    """The state before the first round, from the global model f32[d], and what every client has at home f32[m]."""
    return AtHome(w[None], jnp.tile(home, (clients, 1)), jnp.zeros(clients, bool))


def train_at_home(
    solver: Solver,
    key: Array,
    state: AtHome,
    federation: Federation,
    cohort: Cohort,
    hyper: Hyper,
    average: str,
    diag: Callable[[Array, Array], dict[str, Array]],
    beta: Array | float = 1.0,
) -> tuple[AtHome, Info]:
    """One round: the solver's steps train both; w moves by `beta` times the mean of the updates. What is not finite is left out, at
    home and on the server. `diag`: (new w f32[1, d], what the participants then have at home f32[S, m]) -> diagnostics."""
    everyone, old, w = jnp.zeros_like(cohort.ids), state.home[cohort.ids], state.w
    updates = solver.fit(key, federation, jobs_from(cohort, w, everyone, home=old), hyper)
    assert updates.home is not None
    change = updates.home - old
    mix = averages(solver, federation, cohort, everyone, 1, average, hyper)
    mixed = mix_updates(mix, updates.delta, w, solver.rule(key, hyper))
    kept = keep_own(cohort, change, old)
    new = w + beta * (mixed.new - w)
    either = cohort.mask & ~(usable(updates.delta) & usable(change))
    mixed = mixed._replace(new=new, nonfinite=jnp.sum(either, dtype=jnp.int32))
    drawn = state.drawn.at[cohort.ids].max(cohort.mask & usable(change))
    more = diag(new, kept.new)
    info = report(federation, cohort, updates, w[everyone], new[everyone], mixed, traffic(cohort), **more)
    return AtHome(new, state.home.at[cohort.ids].set(kept.new), drawn), info


def also_global(state: AtHome) -> dict[str, tuple[Array, Array]]:
    """For `Method.also`: every client scored by the global model."""
    return {"global": (state.w, jnp.zeros(state.drawn.shape, jnp.int32))}
