"""Clustering quality and fairness, on the device, with fixed shapes. Clients whose label or true group is −1 are left
out; a number over nobody is NaN. Good to 1e-5 for a million clients in float32: counts stay integers until every
remaining sum has terms of one sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from cfljax.errors import SpecError
from cfljax.registry import Registry
from cfljax.types import Federation, Model, Split

METRICS: Registry[Callable[[Seen], jax.Array]] = Registry("metric", {}, "cfljax.metrics")
"""Users' own, computed beside the engine's at each evaluation: `metric(seen) -> f32[]`."""

_TAKEN = ("diag", "round", "valid", "labels", "bytes_up", "bytes_down", "run")


class Seen(NamedTuple):
    """What a metric of your own is computed from, inside the compiled program."""

    model: Model
    federation: Federation
    test: Split
    """The samples that are scored."""
    models: jax.Array
    """f32[K, d]."""
    labels: jax.Array
    """i32[C]: the cluster of each client, −1 for none."""
    scoring: jax.Array
    """i32[C]: the model that scores each client."""
    who: jax.Array
    """bool[C]: the clients that are scored."""
    correct: jax.Array
    """f32[C]: right answers among the client's test samples."""
    loss: jax.Array
    """f32[C]: the sum of the losses over them."""
    samples: jax.Array
    """i32[C]: how many there are."""
    round: jax.Array
    """i32[]: rounds done."""


def own(names: tuple[str, ...], seen: Seen, row: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The user's metrics by name: f32[] each. `row`: the names that are taken."""
    found = {}
    for name in names:
        if name in row or name in _TAKEN:
            raise SpecError(f'train.metrics = "{name}": the history has a quantity of that name already')
        value = jnp.asarray(METRICS.entry(name, "train.metrics").make(seen), jnp.float32)
        if value.shape:
            raise SpecError(f'train.metrics = "{name}": returned an array of shape {list(value.shape)}; must be one number')
        found[name] = value
    return found


class Clustering(NamedTuple):
    """Found clusters against true groups."""

    purity: jax.Array
    ari: jax.Array
    nmi: jax.Array


class Fairness(NamedTuple):
    """Accuracy over the clients that have test samples; fractions f32[]."""

    accuracy: jax.Array
    """Total correct over total test samples."""
    client_mean: jax.Array
    worst_tenth: jax.Array
    """Mean of the ⌈C'/10⌉ lowest."""
    client_std: jax.Array
    """Of the C' clients as a whole population (divisor C')."""


def clustering(labels: jax.Array, truth: jax.Array, clusters: int, groups: int) -> Clustering:
    """Purity, adjusted Rand index and normalised mutual information of labels i32[C] against truth i32[C]; NaN without groups."""
    if groups == 0:
        return Clustering(*[jnp.float32(jnp.nan)] * 3)
    table = contingency(labels, truth, clusters, groups)
    return Clustering(purity(table), adjusted_rand(table), normalised_mutual_information(table))


def contingency(labels: jax.Array, truth: jax.Array, clusters: int, groups: int) -> jax.Array:
    """i32[K, G]: how many clients of true group g are in cluster k. Numbers outside 0 … K − 1 or 0 … G − 1 count nowhere."""
    chex.assert_rank([labels, truth], 1)
    chex.assert_equal_shape([labels, truth])
    counted = (labels >= 0) & (labels < clusters) & (truth >= 0) & (truth < groups)
    cell = jnp.where(counted, labels * groups + truth, clusters * groups)
    table = jnp.zeros(clusters * groups, jnp.int32).at[cell].add(1, mode="drop")
    return table.reshape(clusters, groups)


def purity(table: jax.Array) -> jax.Array:
    """f32[] share of clients that belong to the commonest group of their cluster; table i32[K, G]."""
    chex.assert_rank(table, 2)
    return _ratio(table.max(axis=1).sum(), table.sum())


def adjusted_rand(table: jax.Array) -> jax.Array:
    """f32[] adjusted Rand index from the four kinds of pairs (Hubert and Arabie); table i32[K, G]. 1 when both
    partitions are the same, also when both are trivial."""
    found, true, n = _margins(table)
    # Each kind of pair as a sum of non-negative integers times counts: nothing cancels.
    together = _pairs(table, jnp.maximum(table - 1, 0), n)
    split_true = _pairs(table, found - table, n)
    split_found = _pairs(table, true - table, n)
    apart = _pairs(table, n - found - true + table, n)
    over = (together + split_found) * (split_found + apart) + (together + split_true) * (split_true + apart)
    same = (split_found == 0) & (split_true == 0)
    value = 2 * (together * apart - split_found * split_true) / jnp.where(same, 1.0, over)
    return jnp.where(n == 0, jnp.nan, jnp.where(same, 1.0, value))


def normalised_mutual_information(table: jax.Array) -> jax.Array:
    """f32[] 2 (H(G) − H(G|K)) / (H(G) + H(K)), the arithmetic mean as normaliser; table i32[K, G]. 1 when both
    partitions have one part, 0 when only one has."""
    found, true, n = _margins(table)
    cluster_entropy = _entropy(found, n, n)
    group_entropy = _entropy(true, n, n)
    remaining = _entropy(table, jnp.broadcast_to(found, table.shape), n)
    trivial = (cluster_entropy == 0) | (group_entropy == 0)
    both = (cluster_entropy == 0) & (group_entropy == 0)
    value = 2 * (group_entropy - remaining) / jnp.where(trivial, 1.0, cluster_entropy + group_entropy)
    value = jnp.where(both, 1.0, jnp.where(trivial, 0.0, jnp.clip(value, 0.0, 1.0)))
    return jnp.where(n == 0, jnp.nan, value)


def fairness(correct: jax.Array, count: jax.Array) -> Fairness:
    """Accuracy numbers from correct f32[C] of count f32[C] test samples; clients with count 0 are left out."""
    chex.assert_rank([correct, count], 1)
    chex.assert_equal_shape([correct, count])
    scored = count > 0
    n = scored.sum()
    each = client_accuracy(correct, count)
    mean = _sum(jnp.where(scored, each, 0.0)) / n
    spread = jnp.sqrt(_sum(jnp.where(scored, (each - mean) ** 2, 0.0)) / n)
    lowest = jnp.arange(each.shape[0]) < (n + 9) // 10
    ranked = jnp.sort(jnp.where(scored, each, jnp.inf))
    worst = _sum(jnp.where(lowest, ranked, 0.0)) / jnp.maximum((n + 9) // 10, 1)
    total = _ratio(_sum(jnp.where(scored, correct, 0.0)), _sum(jnp.where(scored, count, 0.0)))
    return Fairness(total, mean, jnp.where(n > 0, worst, jnp.nan), spread)


def client_accuracy(correct: jax.Array, count: jax.Array) -> jax.Array:
    """f32[C]: correct / count, NaN for clients without test samples."""
    return _ratio(correct, count)


def cluster_accuracy(labels: jax.Array, correct: jax.Array, count: jax.Array, clusters: int) -> jax.Array:
    """f32[K]: accuracy over the test samples of each cluster's clients; NaN where a cluster has none."""
    chex.assert_equal_shape([labels, correct, count])
    where = jnp.where((labels >= 0) & (count > 0), labels, clusters)
    right, total = (_whole_by(where, v, clusters) for v in (correct, count))
    return _ratio(right, total)


def mean_loss(loss: jax.Array, count: jax.Array) -> jax.Array:
    """f32[]: the mean loss of a test sample, from loss f32[C] summed over count i32[C] samples; clients without samples, or whose
    loss is not finite, are left out. NaN of nobody."""
    counted = jnp.isfinite(loss) & (count > 0)
    return _ratio(_sum(jnp.where(counted, loss, 0.0)), _sum(jnp.where(counted, count, 0).astype(jnp.float32)))


def _margins(table: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    chex.assert_rank(table, 2)
    return table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True), table.sum()


def _ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    part, whole = jnp.asarray(part, jnp.float32), jnp.asarray(whole, jnp.float32)
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), jnp.nan)


def _pairs(count: jax.Array, partners: jax.Array, n: jax.Array) -> jax.Array:
    """Σ count · partners / n²."""
    n = jnp.maximum(n, 1).astype(jnp.float32)
    return _sum((count / n) * (partners / n))


def _entropy(count: jax.Array, whole: jax.Array, n: jax.Array) -> jax.Array:
    """Σ count/n · −log(count/whole): every term is ≥ 0 and exact near count = whole, where log loses its digits."""
    share = count / jnp.maximum(whole, 1)
    rest = (whole - count) / jnp.maximum(whole, 1)
    plain = -jnp.log(jnp.where(share > 0, share, 1.0))
    bits = jnp.where(share > 0.5, -jnp.log1p(-jnp.where(share > 0.5, rest, 0.0)), plain)
    return _sum(count / jnp.maximum(n, 1) * bits)


def _whole_by(where: jax.Array, values: jax.Array, clusters: int) -> jax.Array:
    """f32[K]: the sum of whole values f32[C] of each cluster i32[C], added up as integers: exact for two million clients."""
    whole = jnp.asarray(values, jnp.int32)
    high, low = (jnp.zeros(clusters, jnp.int32).at[where].add(part, mode="drop") for part in (whole >> 10, whole & 1023))
    return 1024.0 * high + low


def _sum(values: jax.Array) -> jax.Array:
    """Sum in blocks of 128, then blocks of those: a plain float32 sum of a million terms loses digits."""
    values = values.reshape(-1)
    while values.shape[0] > 128:
        values = jnp.pad(values, (0, -values.shape[0] % 128)).reshape(-1, 128).sum(axis=1)
    return values.sum()
