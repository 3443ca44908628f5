import numpy as np
import pytest
from sklearn.cluster import OPTICS, AgglomerativeClustering

from cfljax.kernels import host

rng = np.random.default_rng(0)


def blobs(n=40, d=5, groups=4):
    true = rng.integers(0, groups, n)
    return 3 * rng.normal(size=(groups, d))[true] + 0.3 * rng.normal(size=(n, d)), true


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_optics_is_sklearns(metric):
    for _ in range(10):
        points, _ = blobs()
        wanted = OPTICS(min_samples=2, xi=0.2, metric=metric).fit(points).labels_
        labels = host.optics(points, 2, 0.2, metric)
        np.testing.assert_array_equal(labels, host.renumber_by_appearance(wanted))
        assert labels.dtype == np.int32
        if metric == "euclidean":
            np.testing.assert_array_equal(
                host.optics(points), labels
            )  # its defaults are the paper's numbers


def test_optics_of_few_equal_and_broken_points():
    assert host.optics(np.zeros((0, 3))).tolist() == []
    assert host.optics(np.zeros((1, 3))).tolist() == [-1]
    assert host.optics(np.ones((3, 2)), min_samples=4).tolist() == [-1] * 3
    for metric in ("euclidean", "cosine"):
        assert (
            len(set(host.optics(np.repeat(np.eye(3), 4, 0), metric=metric).reshape(3, 4)[0])) == 1
        )
        assert host.optics(np.zeros((5, 2)), metric=metric).shape == (5,)
    points, _ = blobs(10)
    broken = np.insert(points, 4, np.nan, axis=0)
    labels = host.optics(broken)
    assert labels[4] == -1
    np.testing.assert_array_equal(np.delete(labels, 4), host.optics(points))


@pytest.mark.parametrize("linkage", ["complete", "average", "single", "ward"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "l1"])
def test_agglomerative_is_sklearns(linkage, metric):
    if linkage == "ward" and metric != "euclidean":
        return
    points = blobs()[0].round(1)  # many distances are equal
    cuts = [{"n_clusters": None, "distance_threshold": apart} for apart in (0.0, 0.1, 0.8)]
    for wanted in [{"n_clusters": number} for number in (1, 2, 4, 9, len(points))] + cuts:
        other = (
            AgglomerativeClustering(linkage=linkage, metric=metric, **wanted).fit(points).labels_
        )
        ours = host.agglomerative(
            points, wanted["n_clusters"], wanted.get("distance_threshold"), linkage, metric
        )
        np.testing.assert_array_equal(ours, host.renumber_by_appearance(other))


def test_agglomerative_of_few_equal_and_broken_points():
    assert host.agglomerative(np.zeros((1, 1)), 3).tolist() == [0]
    assert host.agglomerative(np.ones((1, 3)), 2, None, "average", "cosine").tolist() == [0]
    assert host.agglomerative(np.zeros((0, 0)), 3).tolist() == []
    assert sorted(host.agglomerative(np.zeros((2, 2)), 5)) == [0, 1]
    assert host.agglomerative(np.zeros((4, 3)), None, 0.5, "average", "cosine").tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert host.agglomerative(np.ones((4, 3)), None, 0.5, "average", "cosine").tolist() == [0] * 4
    apart = host.distance_matrix(blobs(8)[0])
    plain = host.agglomerative(apart, 3)
    broken = np.full((9, 9), np.nan)
    broken[:8, :8] = apart
    assert host.agglomerative(broken, 3).tolist() == [*plain, -1]
    with pytest.raises(ValueError, match="either"):
        host.agglomerative(apart)


def test_long_distances_are_those_of_differences(monkeypatch):
    points = 1e3 + rng.normal(size=(30, 50))
    points[3:6] = points[2]
    points[7] = points[8] + 1e-6
    exact = host.distance_matrix(points)
    monkeypatch.setattr(host, "MAX_DIRECT_DIFFERENCES", 0)
    out = host.distance_matrix(points)
    np.testing.assert_allclose(out, exact, rtol=1e-6)
    assert (out == out.T).all() and not out[2:6, 2:6].any()


def test_numbers_follow_first_appearance():
    assert host.renumber_by_appearance(np.array([7, -1, 3, 7, -5, 0])).tolist() == [
        0,
        -1,
        1,
        0,
        -1,
        2,
    ]


def test_noise_rules():
    weights = np.array([[1, 0], [2, 0.1], [0, 3], [0.2, 1], [5, 0], [0, 0]], float)
    labels = np.array([1, 1, 0, -1, -1, -1])
    assert host.settle_noise(weights, labels, "nearest").tolist() == [
        0,
        0,
        1,
        1,
        0,
        1,
    ]  # zero: tie, the lowest label
    assert host.settle_noise(weights, labels, "isolate").tolist() == [0, 0, 1, 2, 3, 4]
    assert not host.settle_noise(weights, np.full(6, -1), "isolate").any()
    weights[1] = np.nan
    assert host.settle_noise(weights, labels, "nearest").tolist() == [0, 0, 1, 1, 0, 1]


def test_merging_joins_the_most_similar_means():
    angles = np.radians([0, 10, 90, 95, 200])
    weights = np.stack([np.cos(angles), np.sin(angles)], 1)
    labels = np.arange(5)
    assert host.merge_to(weights, labels, 1).tolist() == [0] * 5
    assert host.merge_to(weights, np.array([0, -1, 1, 2, 2]), 9).tolist() == [0, -1, 1, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_merging_computes_each_mean_anew(seed):
    """Against the rule by the letter: after each merge the means are those of the members, broken
    rows left out."""
    draw = np.random.default_rng(seed)
    weights, labels = draw.normal(size=(40, 3)) + 0.5, draw.integers(0, 12, 40)
    weights[7], labels[7] = np.nan, labels[8]
    groups = [set(np.flatnonzero(labels == k)) for k in np.unique(labels)]
    while len(groups) > 4:
        means = [np.nanmean(weights[sorted(group)], axis=0) for group in groups]
        closeness = {
            (i, j): means[i] @ means[j] / np.linalg.norm(means[i]) / np.linalg.norm(means[j])
            for i in range(len(groups))
            for j in range(i + 1, len(groups))
        }
        i, j = max(closeness, key=lambda pair: closeness[pair])
        groups[i] |= groups.pop(j)
    found = host.merge_to(weights, labels, 4)
    assert {frozenset(np.flatnonzero(found == k)) for k in range(4)} == {
        frozenset(group) for group in groups
    }


def test_one_thread_while_clustering():
    from threadpoolctl import threadpool_info, threadpool_limits

    seen = []

    def fit(rows):
        seen.extend(p["num_threads"] for p in threadpool_info())
        return np.zeros(len(rows), int)

    with threadpool_limits(limits=2):
        host._fit_finite_rows(fit, np.ones((2, 2)))
        assert {p["num_threads"] for p in threadpool_info()} != {1} == set(seen)


def test_a_zero_vector_has_no_distance_from_itself():
    out = host.distance_matrix(np.array([[0.0, 0], [1, 0]]), "cosine")
    assert out.tolist() == [[0, 1], [1, 0]]


def test_broken_rows_are_left_out_of_the_mean():
    names, means = host.cluster_means(
        np.array([[2.0, 4], [np.nan, 0], [4, 8], [np.nan, 1]]), np.array([0, 0, 0, 3])
    )
    assert names.tolist() == [0, 3] and means.tolist() == [[3, 6], [0, 0]]


def test_only_noise_is_settled():
    weights = np.array(
        [[1, 0], [0.3, 1], [0, 1], [0, 2]], float
    )  # the second is nearer to the other cluster's mean
    assert host.settle_noise(weights, np.array([0, 0, 1, -1]), "nearest").tolist() == [0, 0, 1, 1]
