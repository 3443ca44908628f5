"""Prototypes: for each class the mean of the features that a model finds in its samples. Methods send them beside or instead of
models."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.devices.spread import spread
from cfljax.lazy import jax, jnp
from cfljax.local.gradients import Extra, Samples, gather_batch
from cfljax.local.solver import job_owners
from cfljax.models.flat import features_of
from cfljax.round.ask import Ask
from cfljax.types import Array, Jobs, Tree


class Prototypes(NamedTuple):
    """A prototype for each class."""

    means: Array
    """f32[..., M, width]."""
    known: Array
    """f32[..., M]: of how many clients it is a mean, or of how many samples; 0: there is none."""

    @property
    def flat(self) -> Array:
        """f32[M (width + 1)]."""
        return jnp.concatenate([self.means.ravel(), self.known])


def from_flat(flat: Array, width: int) -> Prototypes:
    """Return the prototypes of `Prototypes.flat`."""
    classes = flat.shape[0] // (width + 1)
    return Prototypes(flat[: classes * width].reshape(classes, width), flat[classes * width :])


def of_participants(ask: Ask, models: Array) -> Prototypes:
    """Return those that each participant finds in its training samples with its model f32[S, d], and how many samples they have. A
    participant that does not take part, or whose features are not finite, has none."""
    solver, federation, cohort = ask.solver, ask.federation, ask.cohort
    features, _ = features_of(solver.model)
    positions, ones = jnp.arange(federation.train.longest), jnp.ones(cohort.ids.shape[0])

    def one(s: Array) -> Prototypes:
        client = cohort.ids[s]
        here = cohort.mask[s] & (s >= 0) & (positions < federation.train.count[client])
        batch = gather_batch(federation, client, positions, here)
        each = jax.nn.one_hot(batch.y, federation.classes) * here[:, None]
        count = each.sum(axis=0)
        sums = each.T @ jnp.where(here[:, None], features(solver.model.unravel(models[s]), batch.x), 0.0)
        found = Prototypes(sums / jnp.maximum(count, 1.0)[:, None], count)
        return jax.tree.map(lambda each: jnp.where(jnp.isfinite(sums).all(), each, 0.0), found)

    owners = job_owners(federation, Jobs(cohort.ids, cohort.mask, ones, models, jnp.zeros_like(cohort.ids)))
    return spread(one, ones, solver.plan, owners)


def near(features: Callable[..., Array], to: Prototypes, weight: Array) -> Extra:
    """Return the loss of a sample whose features are far from its class's prototype: weight times the mean squared difference."""

    def extra(params: Tree, batch: Samples, key: Array | None) -> Array:
        apart = features(params, batch.x, key) - to.means[batch.y]
        return weight * jnp.where(to.known[batch.y] > 0, jnp.mean(apart**2, axis=1), 0.0)

    return extra
