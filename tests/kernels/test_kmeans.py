import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from cfljax import keys
from cfljax.kernels.kmeans import _distances, _lloyd, _plus_plus, kmeans
from tests.kernels.compiled import compiled

rng = np.random.default_rng(0)
KEY = keys.root(0)
SHAPES = [(60, 3), (40, 200), (150, 80)]  # differences; n × n products; products with the points


def blobs(n, d, spread=0.1):
    middles = rng.normal(size=(4, d))
    true = rng.integers(0, 4, n)
    return (middles[true] + spread * rng.normal(size=(n, d))).astype(np.float32), true


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_inertia_is_no_worse_than_sklearns(n, d):
    for spread in (0.1, 1.0):
        points, true = blobs(n, d, spread)
        out = compiled(kmeans, KEY, points, clusters=4)
        other = KMeans(4, n_init=10, random_state=0).fit(points.astype(np.float64))
        assert out.inertia <= other.inertia_ * 1.01
        own = sum(
            ((points[out.labels == k] - points[out.labels == k].mean(0)) ** 2).sum()
            for k in range(4)
        )
        assert out.inertia == pytest.approx(own, rel=1e-4)
        np.testing.assert_allclose(out.centres[1], points[out.labels == 1].mean(0), atol=1e-5)
        if spread == 0.1:
            assert (
                adjusted_rand_score(true, out.labels)
                == 1
                == adjusted_rand_score(other.labels_, out.labels)
            )


@pytest.mark.parametrize(("n", "d"), SHAPES[:2])
def test_padding_changes_no_label(n, d):
    points, _ = blobs(n, d, 0.7)
    plain = compiled(kmeans, KEY, points, clusters=4)
    wide = np.concatenate(
        [
            points,
            100 * rng.normal(size=(6, d)).astype(np.float32),
            np.full((1, d), np.nan, np.float32),
        ]
    )
    out = compiled(kmeans, KEY, wide, clusters=4, mask=np.arange(n + 7) % (n + 6) < n)
    np.testing.assert_array_equal(out.labels[:n], plain.labels)
    assert (out.labels[n:] == -1).all()
    assert out.inertia == pytest.approx(plain.inertia, rel=1e-4)


def test_labels_move_along_with_their_points():
    points, _ = blobs(60, 3, 0.7)
    order = rng.permutation(60)
    plain = compiled(kmeans, KEY, points, clusters=4)
    out = compiled(kmeans, KEY, points[order], clusters=4, uid=order.astype(np.int32))
    np.testing.assert_array_equal(out.labels, plain.labels[order])
    assert plain.labels[0] == 0


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_duplicates_stay_together(n, d, offset):
    two = (offset + rng.normal(size=(2, d))).astype(np.float32)
    points = two[rng.integers(0, 2, n)]
    points[0] = two[0]
    out = compiled(kmeans, KEY, points, clusters=4)
    np.testing.assert_array_equal(out.labels, (points[:, 0] != two[0, 0]).astype(int))
    assert out.inertia == pytest.approx(0, abs=1e-3) and np.isfinite(out.centres).all()
    same = compiled(kmeans, KEY, np.repeat(two[:1], n, 0), clusters=4)
    assert not same.labels.any() and same.inertia == 0


def test_points_all_alike_behind_one_that_is_left_out():
    for d in (3, 70):
        points = np.ones((6, d), np.float32)
        points[0] = np.nan
        out = compiled(kmeans, KEY, points, clusters=3)
        assert out.labels.tolist() == [-1, 0, 0, 0, 0, 0] and out.inertia == 0
        np.testing.assert_allclose(out.centres[0], 1)


def test_degenerate_counts():
    one = np.ones((1, 70), np.float32)
    out = compiled(kmeans, KEY, one, clusters=3, mask=np.ones(1, bool))
    assert out.labels.tolist() == [0] and np.isfinite(out.centres).all()
    none = compiled(kmeans, KEY, one, clusters=3, mask=np.zeros(1, bool))
    assert none.labels.tolist() == [-1] and none.inertia == 0


def test_emptied_clusters_are_filled_again():
    points = np.float32([0, 1, 2, 10])

    def apart(members):
        return jnp.abs(points[:, None] - points @ members)

    start = np.float32(
        [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    )  # clusters 0 and 2 start at the same place
    labels, _, _ = jax.jit(lambda start: _lloyd(apart, start, jnp.ones(4, bool), 10))(start)
    assert labels.tolist() == [
        0,
        1,
        1,
        2,
    ]  # cluster 2 went to the point that was farthest from its centre


def test_max_iter_limits_the_work():
    points, _ = blobs(60, 3, 1.0)
    short, long = (
        compiled(kmeans, KEY, points, clusters=4, restarts=1, max_iter=np.int32(m))
        for m in (1, 300)
    )
    assert long.inertia < short.inertia


def test_equally_good_clusterings_are_chosen_alike_in_any_order():
    """The corners of a square can be halved in two ways, equal but for rounding."""
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]], np.float32).repeat(4, axis=0)
    for seed in range(12):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(40, 40)))[0][:2].astype(
            np.float32
        )
        points, order = corners @ turn, np.random.default_rng(seed + 1).permutation(len(corners))
        key, ids = keys.root(seed), np.arange(len(corners), dtype=np.int32)
        here = compiled(kmeans, key, points, clusters=2, uid=ids).labels
        there = compiled(kmeans, key, points[order], clusters=2, uid=order.astype(np.int32)).labels
        assert np.array_equal(there, here[order])


def test_seeds_are_drawn_by_their_squared_distance():
    """One point far from sixty that lie close together: by distance it is nearly always a centre,
    by chance hardly ever."""
    points = np.concatenate([0.02 * rng.normal(size=(60, 3)), [[1.0, 0.0, 0.0]]]).astype(np.float32)
    present, ids = np.ones(61, bool), np.arange(61, dtype=np.int32)

    @jax.jit
    def drawn(each):
        distance, _ = _distances(points, present)
        return jax.vmap(lambda key: _plus_plus(key, distance, present, ids, 2))(each)

    chosen = drawn(jax.random.split(KEY, 30))
    assert (np.asarray(chosen)[:, 60].sum(axis=1) > 0).sum() >= 25


def test_tiny_points_beside_padding_are_told_apart():
    points, _ = blobs(60, 3)
    wide = np.concatenate([points * np.float32(1e-25), np.zeros((7, 3), np.float32)])
    out = compiled(kmeans, KEY, wide, clusters=4, mask=np.arange(67) < 60)
    np.testing.assert_array_equal(out.labels[:60], compiled(kmeans, KEY, points, clusters=4).labels)


def test_a_point_counts_by_its_weight():
    points, fit = np.float32([[0.0], [1.0], [4.0], [5.0]]), jax.jit(kmeans, static_argnums=2)
    for weight, labels, centres in (
        ([1, 1, 1, 1], [0, 0, 1, 1], [0.5, 4.5]),
        ([60, 60, 1, 1], [0, 1, 1, 1], [0.0, 69 / 62]),
    ):
        found = fit(KEY, points, 2, weight=np.float32(weight))
        assert found.labels.tolist() == labels and np.allclose(found.centres[:, 0], centres)
        copies = KMeans(2, n_init=10, random_state=0).fit(np.repeat(points, weight, axis=0))
        assert np.isclose(found.inertia, copies.inertia_, rtol=1e-4)
