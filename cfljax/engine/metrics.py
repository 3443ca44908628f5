"""Clustering quality and fairness (HOST, in float64), and the metrics of the user (on the device).

Clients whose label or true group is −1 are left out; a mean over no clients is NaN. The last axis
of the arrays counts clients; leading axes, such as runs, are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax.engine.quantities import HISTORY
from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.registry import Registry
from cfljax.types import Federation, Model, Split

METRICS: Registry[Callable[[Seen], jax.Array]] = Registry(
    "metric",
    {
        "perplexity": "cfljax.engine.label_metrics:perplexity",
        "macro_f1": "cfljax.engine.label_metrics:macro_f1",
        "average_precision": "cfljax.engine.label_metrics:average_precision",
    },
    "cfljax.metrics",
)
"""Metrics of the package and of users, computed beside the engine's at each evaluation:
`metric(seen) -> f32[]`."""

RESERVED_NAMES = frozenset((*HISTORY, "traffic", "labels", "diag", "valid", "run"))
"""Names that a user's metric may not have, because the history or a results folder uses them."""


class Seen(NamedTuple):
    """The input of a metric of your own, inside the compiled program of an evaluation. C clients, K
    models, d parameters.

    Example:
        ```python
        @cfljax.register_metric("served")
        def served(seen):
            return jnp.mean(seen.correct >= 0.8 * seen.samples)
        ```
    """

    model: Model
    federation: Federation
    test: Split
    """The samples that are scored."""
    models: jax.Array
    """f32[K, d]: the models."""
    labels: jax.Array
    """i32[C]: the cluster of each client, −1 for none."""
    scoring: jax.Array
    """i32[C]: the model that scores each client."""
    who: jax.Array
    """bool[C]: the clients that are scored."""
    correct: jax.Array
    """f32[C]: right answers among the client's test samples; `Scores.correct` of another score."""
    loss: jax.Array
    """f32[C]: the sum of the losses over them."""
    samples: jax.Array
    """i32[C]: the number of test samples."""
    round: jax.Array
    """i32[]: rounds done."""


def own_metrics(names: tuple[str, ...], seen: Seen) -> dict[str, jax.Array]:
    """Compute the user's metrics by name: f32[] each."""
    found = {}
    for name in names:
        if name in RESERVED_NAMES:
            raise SpecError(
                f'train.metrics = "{name}": the history has a column of this name already'
            )
        value = jnp.asarray(METRICS.entry(name, "train.metrics").make(seen), jnp.float32)
        if value.shape:
            raise SpecError(
                f'train.metrics = "{name}": returned an array of shape {list(value.shape)}; '
                "must be one number"
            )
        found[name] = value
    return found


class Clustering(NamedTuple):
    """Found clusters against true groups."""

    purity: np.ndarray
    ari: np.ndarray
    nmi: np.ndarray


class Fairness(NamedTuple):
    """Accuracy over the clients that have test samples; fractions f64[...]."""

    # Total correct over total test samples
    accuracy: np.ndarray
    client_mean: np.ndarray
    # Mean of the ⌈C'/10⌉ lowest
    worst_tenth: np.ndarray
    # Of the C' clients as a whole population (divisor C')
    client_std: np.ndarray


def score_clustering(
    labels: np.ndarray, truth: np.ndarray, clusters: int, groups: int
) -> Clustering:
    """Compare labels i32[..., C] with the true groups i32[C] or i32[..., C]. `groups`: their
    number; 0: unknown."""
    table = contingency(labels, truth, clusters, max(groups, 1))
    return Clustering(purity(table), adjusted_rand(table), normalised_mutual_information(table))


def contingency(labels: np.ndarray, truth: np.ndarray, clusters: int, groups: int) -> np.ndarray:
    """Count the clients of true group g in cluster k: i64[..., K, G]. Labels outside 0 … K − 1 or 0
    … G − 1 are ignored."""
    labels, truth = np.broadcast_arrays(labels, truth)
    counted = (labels >= 0) & (labels < clusters) & (truth >= 0) & (truth < groups)
    cell = np.where(counted, labels.astype(np.int64) * groups + truth, clusters * groups)
    return _count(cell, clusters * groups).reshape(*labels.shape[:-1], clusters, groups)


def purity(table: np.ndarray) -> np.ndarray:
    """Return f64[...]: share of clients that belong to the most common group of their cluster;
    table i64[..., K, G]."""
    return _ratio(table.max(-1).sum(-1), table.sum((-2, -1)))


def adjusted_rand(table: np.ndarray) -> np.ndarray:
    """Return f64[...]: adjusted Rand index from the four kinds of pairs (Hubert and Arabie); table
    i64[..., K, G]. 1 when both partitions are the same, also when both are trivial."""
    found, true, n = _margins(table)

    def count_pairs(partners: np.ndarray) -> np.ndarray:
        # As floats: products of pairs of a million clients are beyond 64 bits
        return (table.astype(float) * partners).sum((-2, -1))

    # Ordered pairs: of each client with its partners in the same or another cluster and group
    together = count_pairs(np.maximum(table - 1, 0))
    split_true = count_pairs(found - table)
    split_found = count_pairs(true - table)
    apart = count_pairs(n - found - true + table)
    over = (together + split_found) * (split_found + apart)
    over = over + (together + split_true) * (split_true + apart)
    same = (split_found == 0) & (split_true == 0)
    difference = together * apart - split_found * split_true
    value = np.where(same, 1.0, 2 * difference / np.where(same, 1.0, over))
    return np.where(n[..., 0, 0] == 0, np.nan, value)


def normalised_mutual_information(table: np.ndarray) -> np.ndarray:
    """Return f64[...]: 2 (H(G) − H(G|K)) / (H(G) + H(K)), the arithmetic mean as normaliser; table
    i64[..., K, G]. 1 when both partitions have one part, 0 when only one has."""
    found, true, n = _margins(table)
    in_cluster = _entropy(found, n, n)
    in_group = _entropy(true, n, n)
    remaining = _entropy(table, np.broadcast_to(found, table.shape), n)
    trivial = (in_cluster == 0) | (in_group == 0)
    both = (in_cluster == 0) & (in_group == 0)
    value = 2 * (in_group - remaining) / np.where(both, 1.0, in_cluster + in_group)
    value = np.where(both, 1.0, np.where(trivial, 0.0, np.clip(value, 0.0, 1.0)))
    return np.where(n[..., 0, 0] == 0, np.nan, value)


def fairness(correct: np.ndarray, count: np.ndarray) -> Fairness:
    """Compute accuracies from correct [..., C] of count [..., C] test samples; clients with count 0
    are left out."""
    scored = count > 0
    n = scored.sum(-1)
    each = client_accuracy(correct, count)
    mean = _ratio(np.where(scored, each, 0.0).sum(-1), n)
    spread = np.sqrt(_ratio(np.where(scored, (each - mean[..., None]) ** 2, 0.0).sum(-1), n))
    tenth = (n + 9) // 10
    is_lowest = np.arange(each.shape[-1]) < tenth[..., None]
    ascending = np.sort(np.where(scored, each, np.inf), -1)
    worst = _ratio(np.where(is_lowest, ascending, 0.0).sum(-1), tenth)
    return Fairness(per_sample(correct, count), mean, worst, spread)


def per_sample(values: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Average over all samples, f64[...], from the sums [..., C] of right answers or losses over
    count [..., C] samples; NaN without samples. A client whose loss is not finite makes the mean
    not finite: without that client it would look too good."""
    return _ratio(np.where(count > 0, values, 0.0).sum(-1, dtype=float), count.sum(-1, dtype=float))


def client_accuracy(correct: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return f64[..., C]: correct / count, NaN for clients without test samples."""
    return _ratio(correct, count)


def cluster_accuracy(
    labels: np.ndarray, correct: np.ndarray, count: np.ndarray, clusters: int
) -> np.ndarray:
    """Compute the accuracy f64[..., K] over the test samples of each cluster's clients, labels
    i32[..., C]; NaN without any."""
    where = np.where((labels >= 0) & (count > 0), labels, clusters)
    return _ratio(_count(where, clusters, correct), _count(where, clusters, count))


def _margins(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sizes of clusters [..., K, 1], of groups [..., 1, G], and of all [..., 1, 1]."""
    return (
        table.sum(-1, keepdims=True),
        table.sum(-2, keepdims=True),
        table.sum((-2, -1), keepdims=True),
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    part = np.asarray(part, float)
    whole = np.asarray(whole, float)
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def _entropy(count: np.ndarray, whole: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return f64[...]: Σ count/n · −log(count/whole)."""
    share = count / np.maximum(whole, 1)
    return np.maximum(
        (count / np.maximum(n, 1) * -np.log(np.where(share > 0, share, 1.0))).sum((-2, -1)), 0.0
    )


def _count(where: np.ndarray, number: int, values: np.ndarray | None = None) -> np.ndarray:
    """Return [..., number]: how often each number 0 … number − 1 occurs in where i64[..., C], or
    the sums of the values [..., C] there. Of other numbers only `number` itself may occur, which
    counts nowhere."""
    lead = where.shape[:-1]
    flat = where.reshape(-1, where.shape[-1])
    cell = flat + (number + 1) * np.arange(len(flat))[:, None]
    weights = None if values is None else np.broadcast_to(values, where.shape).ravel()
    sums = np.bincount(cell.ravel(), weights, (number + 1) * len(flat))
    return sums.reshape(*lead, number + 1)[..., :number]
