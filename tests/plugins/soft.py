"""FedEM (Marfoq et al. 2021) as a plug-in: K models, and for each client a mixture of them.

Each round a participant finds which model explains each of its samples, q_jk ∝ π_k exp(−ℓ_k(x_j)),
takes their mean as its mixture π, and trains every model on its samples, weighted by q. The models
are averaged by the participants' numbers of samples. A client is scored by the π-weighted mean of
the models' probabilities.

Communication per participant and round: K models down, K updates up.
"""

import dataclasses
from typing import NamedTuple

import jax
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
    Mixing,
    Model,
    Solver,
    first_models,
    jobs_from,
    option,
    report_trained,
    sizes,
    traffic,
    train_and_mix,
    weights_by,
)


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """Options of FedEM."""

    clusters: int = option(3, "number of models", low=1)


class State(NamedTuple):
    """The models, and the clients' mixtures of them."""

    models: Array
    """f32[K, d]."""
    mixture: Array
    """f32[C, K]."""


@cfljax.register_method("soft", Config)
def make(config: Config, model: Model, solver: Solver) -> Method[State]:
    """FedEM: every client has a mixture of models."""
    k = config.clusters

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        return State(first_models(key, model, k), jnp.full((federation.clients, k), 1 / k))

    def round(
        key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper
    ) -> tuple[State, Info]:
        count = federation.train.count[cohort.ids]
        losses = solver.sample_losses(federation, state.models, cohort.ids, cohort.mask)
        q = jax.nn.softmax(jnp.log(state.mixture[cohort.ids])[:, :, None] - losses, axis=1)
        there = jnp.arange(q.shape[2]) < count[:, None, None]
        mixture = jnp.where(there, q, 0.0).sum(axis=2) / jnp.maximum(count, 1)[:, None]
        mixture = jnp.where(
            cohort.mask[:, None] & (count > 0)[:, None], mixture, state.mixture[cohort.ids]
        )

        each, which = (
            cohort.repeat(k),
            jnp.tile(jnp.arange(k), cohort.ids.shape[0]),
        )  # every participant trains all models
        jobs = jobs_from(each, state.models, which, weights=q.reshape(-1, q.shape[2]))
        mix = weights_by(which, each.mask, sizes(federation, each), k)
        trained = train_and_mix(solver, key, federation, jobs, hyper, Mixing(mix, state.models))
        new = trained.mixed.new
        info = report_trained(
            federation, each, trained, which, new - state.models, traffic(cohort, k, k)
        )
        return State(new, state.mixture.at[cohort.ids].set(mixture)), info

    def models(state: State) -> tuple[Array, Array]:
        return state.models, jnp.argmax(state.mixture, axis=1)

    return Method(init, round, models, mixture=lambda state, federation, hyper: state.mixture)
