"""For methods in which a client belongs to several models: values for each model and training sample, without holding all."""

from __future__ import annotations

from collections.abc import Callable

from cfljax.devices.spread import spread
from cfljax.lazy import jax, jnp
from cfljax.local.gradients import gather_batch
from cfljax.local.solver import Solver, job_owners
from cfljax.local.stream import block_size, fold_blocks
from cfljax.types import Array, Cohort, Federation, Jobs

Of = Callable[[Array, Array, Array], Array]
"""(losses f32[K, B], labels i32[B], positions i32[B] of the samples' clients in the list) -> f32[K, B], a value per model and
sample."""


def in_lists(federation: Federation, cohort: Cohort) -> Array:
    """bool[S, N]: the slots of the participants' samples, among as many slots as the largest client has samples."""
    return jnp.arange(federation.train.longest) < federation.train.count[cohort.ids][:, None]


def sample_labels(solver: Solver, federation: Federation, cohort: Cohort) -> Array:
    """i32[S, N]: the labels of the participants' samples as they see them, in the order of their samples; 0 beyond them."""
    positions = jnp.arange(federation.train.longest)

    def of(s: Array) -> Array:
        client = cohort.ids[s]
        here = cohort.mask[s] & (s >= 0) & (positions < federation.train.count[client])
        return gather_batch(federation, client, positions, here).y

    ones = jnp.ones(cohort.ids.shape[0])
    jobs = Jobs(cohort.ids, cohort.mask, ones, ones[:, None], jnp.zeros_like(cohort.ids))
    return spread(of, ones, solver.plan, job_owners(federation, jobs))


def count_labels(solver: Solver, federation: Federation) -> Array:
    """f32[C, M]: how many training samples of each label each client has."""
    everyone = jnp.arange(federation.clients, dtype=jnp.int32)
    cohort = Cohort(everyone, federation.train.count > 0, jnp.ones(federation.clients), jnp.int32(0))
    labels = sample_labels(solver, federation, cohort)
    return jnp.zeros((federation.clients, federation.classes)).at[everyone[:, None], labels].add(in_lists(federation, cohort))


def mean_over_samples(solver: Solver, federation: Federation, models: Array, who: Array, of: Of) -> Array:
    """f32[C, K]: the mean of the values `of` over the training samples of each client where `who` bool[C] is True. The time is that
    of their samples, and memory holds one block of samples."""
    split, clients = federation.train, jnp.arange(federation.clients)
    model, most = solver.model, federation.clients * split.longest
    block = block_size(model, federation, models.shape[0], most, solver.plan.on_cpu)
    params = jax.vmap(model.unravel)(models)

    def visit(total: Array, x: Array, y: Array, index: Array, valid: Array) -> Array:
        losses = jax.vmap(lambda p: model.loss(model.forward(p, x), y))(params)
        return total.at[index].add(jnp.where(valid, of(losses, y, index), 0.0).T)

    total = fold_blocks(federation, split, clients, who, block, visit, jnp.zeros((federation.clients, models.shape[0])))
    return total / jnp.maximum(split.count, 1)[:, None]
