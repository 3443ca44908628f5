"""FedPer (Arivazhagan et al. 2019) as a plug-in: one body for everybody, and a last layer that
stays with each client.

Communication per participant and round: one model down, one update up (of which the server uses the
body).
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

import cfljax
from cfljax.extend import (
    Array,
    Cohort,
    Federation,
    Hyper,
    Info,
    Method,
    MethodConfig,
    Model,
    Solver,
    first_model,
    jobs_from,
    mix_updates,
    option,
    part_of,
    report,
    sizes,
    traffic,
    usable,
    weights_by,
)


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """Options of FedPer."""

    head: str = option("dense_1", "the layer that stays with each client")

    def per_client(self, clients: int, d: int) -> int:
        return d


class State(NamedTuple):
    """The shared model, and each client's own, of which only the head counts."""

    shared: Array
    """f32[1, d]."""
    heads: Array
    """f32[C, d]."""


@cfljax.register_method("partly", Config)
def make(config: Config, model: Model, solver: Solver) -> Method[State]:
    """FedPer: the body is shared, the head is personal."""
    head = jnp.asarray(part_of(model, config.head))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        first = first_model(key, model)
        return State(first[None], jnp.tile(first, (federation.clients, 1)))

    def round(
        key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        everyone, each = jnp.zeros_like(cohort.ids), jnp.arange(cohort.ids.shape[0])
        start = jnp.where(head, state.heads[cohort.ids], state.shared)
        updates = solver.fit(key, federation, jobs_from(cohort, start, each), hyper)
        body = jnp.where(head, 0.0, updates.delta)
        mix = weights_by(everyone, cohort.mask, sizes(federation, cohort), 1)
        mixed = mix_updates(mix, body, state.shared, solver.rule(key, hyper))
        trained = (cohort.mask & usable(updates.delta))[:, None]
        heads = state.heads.at[cohort.ids].set(
            jnp.where(trained, start + updates.delta, state.heads[cohort.ids])
        )
        end = jnp.where(head, heads[cohort.ids], mixed.new)
        return State(mixed.new, heads), report(
            federation, cohort, updates, start, end, mixed, traffic(cohort)
        )

    def models(state: State) -> tuple[Array, Array]:
        return jnp.where(head, state.heads, state.shared), jnp.arange(state.heads.shape[0])

    return Method(init, round, models, chooses=False)
