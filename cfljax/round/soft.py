"""For methods in which a client belongs to several models: which model explains which of its samples, the mixtures that follow from
it, and a round in which every participant trains every model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.devices.spread import spread
from cfljax.lazy import jax, jnp
from cfljax.local.averages import averages, with_lengths
from cfljax.local.gradients import batch_of_client
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from, train_and_mix
from cfljax.local.solver import Solver, owners_of
from cfljax.local.stream import block_size, fold_blocks
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Jobs, Traffic

Of = Callable[[Array, Array, Array], Array]
"""(losses f32[K, B], labels i32[B], positions i32[B] of the samples' clients in the list) -> f32[K, B], a value per model and
sample."""


class Explained(NamedTuple):
    """What the participants find about their samples."""

    q: Array
    """f32[S, K, N]: the share that each model has in each sample, in the order of the client's samples; beyond these it means
    nothing."""
    mixture: Array
    """f32[S, K]: the mean of q over a client's samples; as it was before where that mean is not finite, or there are no samples."""


def explain(
    solver: Solver, federation: Federation, cohort: Cohort, models: Array, mixture: Array, log_prior: Array | None = None
) -> Explained:
    """The E-step of the participants, q ∝ mixture_k · exp(−loss_k), from their mixtures f32[S, K]. `log_prior` f32[K, M]: what is
    subtracted from −loss_k of a sample with label m; None: nothing."""
    count = federation.train.count[cohort.ids]
    there = in_lists(federation, cohort)
    losses = solver.sample_losses(federation, models, cohort.ids, cohort.mask)
    if log_prior is not None:
        labels = sample_labels(solver, federation, cohort)
        losses = losses + jnp.swapaxes(log_prior[:, labels], 0, 1)
    q = _shares(jnp.log(mixture)[:, :, None], losses, 1)
    mean = jnp.where(there[:, None, :], q, 0.0).sum(axis=2) / jnp.maximum(count, 1)[:, None]
    known = cohort.mask & (count > 0) & jnp.isfinite(mean).all(axis=1)
    return Explained(q, jnp.where(known[:, None], mean, mixture))


def in_lists(federation: Federation, cohort: Cohort) -> Array:
    """bool[S, N]: the places of the participants' samples, among as many places as the largest client has samples."""
    return jnp.arange(federation.train.longest) < federation.train.count[cohort.ids][:, None]


def sample_labels(solver: Solver, federation: Federation, cohort: Cohort) -> Array:
    """i32[S, N]: the labels of the participants' samples as they see them, in the order of their samples; 0 beyond them."""
    positions = jnp.arange(federation.train.longest)

    def of(s: Array) -> Array:
        client = cohort.ids[s]
        here = cohort.mask[s] & (s >= 0) & (positions < federation.train.count[client])
        return batch_of_client(federation, client, positions, here).y

    ones = jnp.ones(cohort.ids.shape[0])
    jobs = Jobs(cohort.ids, cohort.mask, ones, ones[:, None], jnp.zeros_like(cohort.ids))
    return spread(of, ones, solver.plan, owners_of(federation, jobs))


def mixtures_of_all(
    solver: Solver, federation: Federation, models: Array, mixture: Array, known: Array, steps: int, log_prior: Array | None = None
) -> Array:
    """f32[C, K]: the mixtures f32[C, K], in which clients where `known` bool[C] is False have that of `steps` E-steps on their own
    training samples, from equal shares, with the models as they are. Without samples the shares stay equal."""
    without = ~known & federation.trains
    equal = jnp.full_like(mixture, 1 / mixture.shape[1])

    def step(_: Array, now: Array) -> Array:
        prior = jnp.log(now).T

        def of(losses: Array, y: Array, owner: Array) -> Array:
            return _shares(prior[:, owner], losses if log_prior is None else losses + log_prior[:, y], 0)

        new = mean_over_samples(solver, federation, models, without, of)
        return jnp.where(jnp.isfinite(new).all(axis=1, keepdims=True), new, now)

    found = jax.lax.fori_loop(0, jnp.where(jnp.any(without), steps, 0), step, equal)
    return jnp.where(known[:, None], mixture, jnp.where(without[:, None], found, equal))


def mean_over_samples(solver: Solver, federation: Federation, models: Array, who: Array, of: Of) -> Array:
    """f32[C, K]: the mean of the values `of` over the training samples of each client where `who` bool[C] is True. The time is that
    of their samples, and memory holds one block of samples."""
    split, clients = federation.train, jnp.arange(federation.clients)
    model, most = solver.model, federation.clients * split.longest
    block = block_size(model, federation, models.shape[0], most, solver.plan.on_cpu)
    params = jax.vmap(model.unravel)(models)

    def visit(total: Array, x: Array, y: Array, place: Array, valid: Array) -> Array:
        losses = jax.vmap(lambda p: model.loss(model.forward(p, x), y))(params)
        return total.at[place].add(jnp.where(valid, of(losses, y, place), 0.0).T)

    total = fold_blocks(federation, split, clients, who, block, visit, jnp.zeros((federation.clients, models.shape[0])))
    return total / jnp.maximum(split.count, 1)[:, None]


def train_all(
    solver: Solver,
    key: Array,
    federation: Federation,
    cohort: Cohort,
    models: Array,
    q: Array,
    hyper: Hyper,
    average: str,
    traffic: Traffic,
) -> tuple[Array, Info]:
    """Every participant trains each of the models f32[K, d] on its samples, their losses multiplied by q f32[S, K, N]. The models
    become the means of what the participants made of them, by `average`. Returns them, and the report on the round."""
    k = models.shape[0]
    each, which = cohort.repeat(k), jnp.tile(jnp.arange(k, dtype=jnp.int32), cohort.ids.shape[0])
    jobs = jobs_from(each, models, which, weights=q.reshape(-1, q.shape[2]))
    mix = averages(solver, federation, each, which, k, average, hyper)
    trained = train_and_mix(solver, key, federation, jobs, hyper, Mixing(mix, models))
    new, sent = trained.mixed.new, with_lengths(traffic, cohort, average)
    return new, report_trained(federation, each, trained, which, new - models, sent)


def _shares(log_mixture: Array, losses: Array, axis: int) -> Array:
    """q ∝ exp(log_mixture − losses) along the axis of models."""
    return jax.nn.softmax(log_mixture - losses, axis=axis)
