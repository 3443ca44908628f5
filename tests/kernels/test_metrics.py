import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from cfljax.engine import metrics

rng = np.random.default_rng(0)


def score(labels, truth, clusters=4, groups=5):
    return metrics.score_clustering(
        np.int32(labels), np.int32(truth), clusters=clusters, groups=groups
    )


def test_quality_is_sklearns_on_500_partitions():
    labels, truth = (
        rng.integers(-1, 4, (500, 30)).astype(np.int32),
        rng.integers(-1, 5, (500, 30)).astype(np.int32),
    )
    labels[:50] = np.where(truth[:50] == 4, 0, truth[:50])  # good ones
    labels[50:100] = 2  # one cluster
    truth[90:110] = 1  # one group
    labels[120:140, :28] = -1  # hardly anybody
    out = metrics.score_clustering(labels, truth, 4, 5)
    for i in range(500):
        known = (labels[i] >= 0) & (truth[i] >= 0)
        if not known.any():
            assert np.isnan([out.ari[i], out.nmi[i], out.purity[i]]).all()
            continue
        a, b = labels[i][known], truth[i][known]
        assert out.ari[i] == pytest.approx(adjusted_rand_score(b, a), abs=1e-5)
        assert out.nmi[i] == pytest.approx(normalized_mutual_info_score(b, a), abs=1e-5)
        assert out.purity[i] == pytest.approx(
            contingency_matrix(b, a).max(0).sum() / known.sum(), abs=1e-6
        )


def test_contingency_counts_only_what_is_in_range():
    table = metrics.contingency(
        np.int32([0, 1, 1, -1, 2, 0]), np.int32([1, 0, 0, 1, 1, 9]), clusters=2, groups=2
    )
    assert table.tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize("kind", ["random", "noisy", "one big", "relabelled"])
def test_a_million_clients(kind):
    n = 1_000_000
    truth = rng.integers(0, 5, n)
    labels = np.where(rng.random(n) < 0.3, rng.integers(0, 4, n), truth % 4)
    if kind == "random":
        labels = rng.integers(0, 4, n)
    if (
        kind == "one big"
    ):  # nearly everybody in one cluster and one group: sums of squares cancel to nothing
        labels, truth = (np.arange(n) < 3) * 1, ((np.arange(n) > 0) & (np.arange(n) < 4)) * 1
    if kind == "relabelled":
        truth %= 4
        labels = (truth + 1) % 4
    out = score(labels, truth)
    table = np.asarray(contingency_matrix(truth, labels))
    assert out.ari == pytest.approx(adjusted_rand_score(truth, labels), abs=1e-5)
    assert out.nmi == pytest.approx(normalized_mutual_info_score(truth, labels), abs=1e-5)
    assert out.purity == pytest.approx(table.max(0).sum() / n, abs=1e-6)


def test_fairness_numbers():
    count = rng.integers(0, 30, 47).astype(np.float32)
    correct = np.floor(count * rng.random(47)).astype(np.float32)
    correct[count == 0] = np.nan  # nothing was scored there
    out = metrics.fairness(correct, count)
    each = np.sort(correct[count > 0] / count[count > 0])
    lowest = each[: int(np.ceil(len(each) / 10))]
    wanted = (np.nansum(correct) / count.sum(), each.mean(), lowest.mean(), each.std())
    assert tuple(out) == pytest.approx(wanted, abs=1e-6)
    single = metrics.client_accuracy(correct, count)
    np.testing.assert_allclose(np.sort(single[count > 0]), each, rtol=1e-6)
    assert np.isnan(metrics.fairness(correct, 0 * count)).all()


@pytest.mark.parametrize("clients", [1, 10, 11])
def test_the_worst_tenth_is_rounded_up(clients):
    out = metrics.fairness(
        np.arange(clients, dtype=np.float32)[::-1], np.full(clients, 20, np.float32)
    )
    assert out.worst_tenth == pytest.approx({1: 0, 10: 0, 11: 0.5 / 20}[clients])


def test_fairness_of_a_million_clients():
    count = rng.integers(1, 200, 1_000_000).astype(np.float32)
    correct = np.floor(count * rng.random(count.size)).astype(np.float32)
    out, each = metrics.fairness(correct, count), correct.astype(np.float64) / count
    wanted = (
        correct.sum(dtype=np.float64) / count.sum(dtype=np.float64),
        each.mean(),
        np.sort(each)[:100_000].mean(),
        each.std(),
    )
    assert tuple(out) == pytest.approx(wanted, abs=1e-5)


def test_cluster_accuracy():
    labels, correct, count = (
        np.int32([0, 1, 0, -1, 2]),
        np.float32([1, 2, 3, 4, np.nan]),
        np.float32([2, 4, 4, 4, 0]),
    )
    out = metrics.cluster_accuracy(labels, correct, count, clusters=3)
    assert out[:2].tolist() == pytest.approx([4 / 6, 0.5]) and np.isnan(out[2])


def test_clusters_and_losses_of_very_many_samples():
    """More samples than float32 counts in a cluster, and than int32 counts in all."""
    rng = np.random.default_rng(0)
    correct = rng.binomial(97, 0.7, 300_000)
    out = metrics.cluster_accuracy(
        np.zeros(300_000, np.int32), np.float32(correct), np.full(300_000, 97), clusters=2
    )
    assert np.isclose(out[0], correct.mean() / 97, rtol=1e-6) and np.isnan(out[1])
    loss = rng.uniform(1e3, 1e4, 300_000).astype(np.float32)
    mean = metrics.per_sample(loss, np.full(300_000, 10_000, np.int32))
    assert np.isclose(mean, loss.mean(dtype=np.float64) / 10_000, rtol=1e-6)


def test_a_client_whose_loss_breaks_makes_the_mean_loss_no_better():
    loss, count = np.float32([2.0, np.nan, 9.0, 4.0]), np.int32([1, 0, 0, 2])
    assert metrics.per_sample(loss, count) == 2.0 and np.isnan(
        metrics.per_sample(loss[1:3], count[1:3])
    )
    for broken in (np.nan, np.inf):
        assert not np.isfinite(
            metrics.per_sample(np.float32([2.0, broken, 9.0, 4.0]), np.int32([1, 1, 0, 2]))
        )
