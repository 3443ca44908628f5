"""Aggregation. A method says by a mixing matrix f32[K, S] how participants are averaged; only this
module applies such a matrix, and only here empty clusters and non-finite updates are handled."""

from __future__ import annotations

from typing import NamedTuple

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.robust import robust_sum
from cfljax.lazy import chex, jax, jnp


class Aggregate(NamedTuple):
    """The clusters' models after aggregation (`mix_updates`), and a record of the updates that were
    left out."""

    new: jax.Array
    """f32[K, d]: the models."""
    nonfinite: jax.Array
    """i32[]: participants with weight in some cluster whose update was NaN or Inf; it counts as a
    zero update."""
    lost: jax.Array
    """bool[K]: clusters whose participants had no finite update; they keep their old model."""


class Rule(NamedTuple):
    """How the server combines the updates of a cluster; by default a weighted sum. `Solver.rule`
    returns the rule of a run."""

    statistic: str = ""
    """Static: a statistic of kernels/robust.py instead of the mean."""
    number: jax.Array | float = 0.0
    """f32[]: the share that the statistic needs (trimmed samples, or attackers)."""
    noise: jax.Array | None = None
    """f32[]: standard deviation of Gaussian noise on the sum of a cluster, over the largest weight
    in it; None: no noise."""
    key: jax.Array | None = None
    """The random key of the noise."""


PLAIN = Rule()


def mix_updates(mix: jax.Array, delta: jax.Array, old: jax.Array, rule: Rule = PLAIN) -> Aggregate:
    """Return the models after aggregation, `old + mix @ delta`. A cluster without weight keeps its
    old model to the bit; a non-finite update counts as zero, and its weight is not given to other
    updates.

    Args:
        mix: f32[K, S] the weight of each participant in each cluster; rows need not sum to 1.
        delta: f32[S, d] the updates.
        old: f32[K, d] the models before.
        rule: How updates are combined; by default a weighted sum. `solver.rule(key, hyper)` is the
            rule of the run, with its robust statistic and its noise.

    Example:
        ```python
        mix = weights_by(which, cohort.mask, sizes(federation, cohort), clusters=4)
        mixed = mix_updates(mix, updates.delta, state.models, solver.rule(key, hyper))
        state = state._replace(models=mixed.new)
        ```
    """
    chex.assert_rank([mix, delta, old], 2)
    chex.assert_shape(mix, (old.shape[0], delta.shape[0]))
    chex.assert_equal_shape_suffix([delta, old], 1)
    moved, finite = sum_by(rule, mix, delta)
    return move_by(mix, moved, finite, old, rule)


def sum_by(rule: Rule, mix: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return what `weighted_sum` does, with the rule's statistic instead of the mean, or with the
    rule's noise added."""
    if rule.statistic:
        finite = jnp.isfinite(rows).all(axis=1)
        return robust_sum(mix, rows, finite, rule.statistic, rule.number), finite
    moved, finite = weighted_sum(mix, rows)
    return add_noise(rule, mix, moved), finite


def usable(rows: jax.Array) -> jax.Array:
    """Return bool[S]: which rows count as finite, because their squared norm is a float32.

    Args:
        rows: f32[S, d] updates, or other vectors.
    """
    # One sum is five times as fast on a CPU as testing each number
    return jnp.isfinite(jnp.sum(rows * rows, axis=1))


def add_noise(rule: Rule, mix: jax.Array, moved: jax.Array) -> jax.Array:
    """Add the rule's noise to the weighted sums f32[K, d]; clusters without weight stay as they
    are."""
    if rule.noise is None or rule.key is None:
        return moved
    drawn = jax.random.normal(rule.key, moved.shape, moved.dtype)
    return moved + rule.noise * jnp.max(jnp.abs(mix), axis=1, keepdims=True) * drawn


def weighted_sum(mix: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return mix f32[K, S] @ rows f32[S, d] over the finite rows, f32[K, d], and which rows are
    finite, bool[S]. Disjoint parts of the rows can be summed apart and added."""
    finite = usable(rows)

    def sum_all() -> jax.Array:
        return jnp.matmul(mix, rows, precision=HIGHEST)

    def sum_finite() -> jax.Array:
        # Broken rows are replaced, as weight 0 would not do: 0 · NaN is NaN
        return jnp.matmul(mix, jnp.where(finite[:, None], rows, 0.0), precision=HIGHEST)

    # The usual case needs no copy of all rows
    return jax.lax.cond(jnp.all(finite), sum_all, sum_finite), finite


def move_by(
    mix: jax.Array, moved: jax.Array, finite: jax.Array, old: jax.Array, rule: Rule = PLAIN
) -> Aggregate:
    """Compute what `mix_updates` returns from the weighted sum `moved` of the finite updates, with
    the rule's noise."""
    return _finish(old + moved, old, mix, finite, rule)


def replace_by(
    mix: jax.Array, mean: jax.Array, finite: jax.Array, old: jax.Array, rule: Rule = PLAIN
) -> Aggregate:
    """Average models of participants that started from different ones. Clusters without weight keep
    their old model to the bit; a non-finite model counts as the cluster's old one.

    Args:
      mix: f32[K, S] the weight of each participant in each cluster.
      mean: f32[K, d] the weighted sum of the finite models, with the rule's noise.
      finite: bool[S] which participants' models are finite.
      old: f32[K, d] the models before.
      rule: The rule by which `mean` was computed.
    """
    missing = jnp.where(finite, 0.0, mix).sum(axis=1, keepdims=True)
    # Without `where`, an old model with NaN would spread it by 0 · NaN though it is not used
    stay = jnp.where(missing != 0, missing * old, 0.0)
    return _finish(mean + stay, old, mix, finite, rule)


def members(labels: jax.Array, clusters: int, mask: jax.Array | bool = True) -> jax.Array:
    """Return bool[K, S]: whether participant s, with label i32[S] and mask bool[S], is a member of
    cluster k."""
    return (labels[None, :] == jnp.arange(clusters, dtype=labels.dtype)[:, None]) & mask


def weights_by(
    labels: jax.Array, mask: jax.Array, sizes: jax.Array, clusters: int, by: str = "samples"
) -> jax.Array:
    """Return the mixing matrix f32[K, S] of averages inside clusters: row k spreads weight 1 over
    the participants labelled k; rows of empty clusters are 0.

    Args:
        labels: i32[S] the cluster of each participant; −1: in no cluster.
        mask: bool[S] whether it takes part.
        sizes: f32[S] its number of samples.
        clusters: K.
        by: `"samples"`, in proportion to sizes, or `"uniform"`, equally.
    """
    chex.assert_rank([labels, mask, sizes], 1)
    chex.assert_equal_shape([labels, mask, sizes])
    if by not in ("samples", "uniform"):
        raise ValueError(f'weights by "{by}": must be "samples" or "uniform"')
    if by == "samples":
        size = jnp.asarray(sizes, jnp.float32)
    else:
        size = jnp.ones(labels.shape, jnp.float32)
    member = members(labels, clusters, mask)
    weight = jnp.where(member, size[None, :], 0.0)
    total = weight.sum(axis=1, keepdims=True)
    return jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), 0.0)


def fednova_weights(mix: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return f32[K, S]: the weights of FedNova (Wang et al. 2020) from the weights of a mean, `mix`
    f32[K, S], whose rows sum to 1 or 0. An update is divided by its length f32[S] (the steps in
    it), and the mean of the quotients is multiplied by the mean length, so that a client moves its
    cluster by its weight, not by its weight times its steps."""
    chex.assert_shape(lengths, (mix.shape[1],))
    each = jnp.where(mix != 0, lengths[None, :], 0.0)
    mean = jnp.sum(mix * each, axis=1, keepdims=True)
    return jnp.where(each > 0, mix * mean / jnp.where(each > 0, each, 1.0), 0.0)


def _finish(
    new: jax.Array, old: jax.Array, mix: jax.Array, finite: jax.Array, rule: Rule
) -> Aggregate:
    used = mix != 0
    has_finite = (used & finite).any(axis=1)
    nonfinite = jnp.sum(used.any(axis=0) & ~finite, dtype=jnp.int32)
    # With noise a cluster without a finite update moves, too: a model without noise would reveal it
    moves = has_finite if rule.noise is None else used.any(axis=1)
    return Aggregate(jnp.where(moves[:, None], new, old), nonfinite, used.any(axis=1) & ~has_finite)
