import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.kernels.choose import joint_cost, least_loss, move_similarity, nearest, reseed_empty
from tests.kernels.compiled import compiled

rng = np.random.default_rng(0)
NAN, INF = np.nan, np.inf


def test_least_loss_is_argmin_with_ties_to_the_lowest():
    losses = rng.integers(0, 4, (5, 500)).astype(np.float32)
    np.testing.assert_array_equal(compiled(least_loss, losses), losses.argmin(axis=0))


def test_nan_is_chosen_only_when_there_is_nothing_else():
    losses = np.array([[NAN, NAN, 1, NAN], [2, INF, NAN, NAN]], np.float32)
    assert compiled(least_loss, losses).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("how", ["descent", "literal", "euclidean"])
def test_move_similarity_follows_the_readings(how):
    g, last = (
        rng.normal(size=(3, 6, 11)).astype(np.float32),
        rng.normal(size=(3, 11)).astype(np.float32),
    )
    last[1] = 0  # an empty cluster has not moved
    wanted = np.zeros((3, 6))
    for k in range(3):
        for s in range(6):
            size = np.linalg.norm(g[k, s]) * np.linalg.norm(last[k])
            cosine = g[k, s] @ last[k] / size if size else 0
            apart = -np.linalg.norm(-0.1 * g[k, s] - last[k])
            wanted[k, s] = {"descent": -cosine, "literal": cosine, "euclidean": apart}[how]
        np.testing.assert_allclose(
            compiled(move_similarity, g[k], last[k], how=how, lr=0.1), wanted[k], atol=1e-5
        )
    g[0, 0, 0] = NAN
    assert np.isfinite(compiled(move_similarity, g[0], last[0], how=how, lr=0.1)).all()


def joint_choice(losses, similarity, lam):
    return least_loss(joint_cost(losses, similarity, lam))


def test_joint_choice_and_its_limits():
    losses, similarity = (
        rng.random((4, 50)).astype(np.float32),
        rng.uniform(-1, 1, (4, 50)).astype(np.float32),
    )
    np.testing.assert_array_equal(
        compiled(joint_choice, losses, similarity, 0.2), (0.2 * similarity - 0.8 * losses).argmax(0)
    )
    losses[1, :9] = NAN
    np.testing.assert_array_equal(
        compiled(joint_choice, losses, similarity, 0.0), compiled(least_loss, losses)
    )
    np.testing.assert_array_equal(
        compiled(joint_choice, 0 * np.nan_to_num(losses), similarity, 1.0), similarity.argmax(0)
    )


@pytest.mark.parametrize(("far", "size"), [(0.0, 5), (1e3, 40), (0.0, 9001)])
def test_nearest_agrees_with_float64_off_the_margin(far, size):
    centres = (far + rng.normal(size=(6, size))).astype(np.float32)
    centres[5] = centres[2]  # a tie: never chosen
    points = (centres[rng.integers(0, 6, 80)] + 0.7 * rng.normal(size=(80, size))).astype(
        np.float32
    )
    wide = ((points[:, None].astype(np.float64) - centres[None]) ** 2).sum(2)
    ranked = np.sort(wide[:, :5], axis=1)
    clear = ranked[:, 1] - ranked[:, 0] > 1e-5 * ranked[:, 0]
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(
        compiled(nearest, points, centres)[clear], wide.argmin(axis=1)[clear]
    )


def test_nearest_passes_over_inactive_and_broken_centres():
    centres = np.array([[0, 0], [NAN, 0], [5, 5]], np.float32)
    points = np.zeros((2, 2), np.float32)
    assert compiled(nearest, points, centres, np.array([False, True, True])).tolist() == [2, 2]
    assert compiled(nearest, points, centres).tolist() == [0, 0]


def test_reseeding_fills_every_cluster_with_distinct_participants():
    draw = jax.jit(reseed_empty, static_argnums=(3, 5))
    uid, mask = np.arange(10, dtype=np.int32) * 3, np.arange(10) < 8
    seen = set()
    for seed in range(30):
        labels = np.zeros(10, np.int32)
        out = np.asarray(draw(keys.root(seed), labels, mask, 4, uid, "when_empty"))
        assert sorted(out[out > 0]) == [1, 2, 3] and not out[8:].any()
        seen.add(tuple(np.flatnonzero(out)))
    assert len(seen) > 10


def test_reseeding_rules():
    key, uid, mask = keys.root(1), np.arange(6), np.ones(6, bool)
    full = np.array([0, 1, 2, 0, 1, 2], np.int32)
    assert (
        compiled(reseed_empty, key, full, mask, clusters=3, uid=uid, rule="when_empty").tolist()
        == full.tolist()
    )
    moved = compiled(reseed_empty, key, 0 * full, mask, clusters=3, uid=uid, rule="always")
    assert sorted(moved)[-2:] == [1, 2]
    assert not reseed_empty(key, 0 * full, mask, 3, uid, "never").any()
    few = np.arange(6) < 2  # fewer than K participants
    assert not compiled(reseed_empty, key, 0 * full, few, clusters=3, uid=uid, rule="always").any()
    assert not np.any(
        reseed_empty(key, np.zeros(2, np.int32), np.ones(2, bool), 3, np.arange(2), "always")
    )


def test_the_draw_follows_identities_not_positions():
    key, order = keys.root(3), rng.permutation(7)
    uid, labels = np.array([4, 9, 1, 7, 30, 2, 8]), np.zeros(7, np.int32)
    plain = compiled(reseed_empty, key, labels, np.ones(7, bool), clusters=3, uid=uid)
    np.testing.assert_array_equal(
        compiled(reseed_empty, key, labels, np.ones(7, bool), clusters=3, uid=uid[order]),
        plain[order],
    )
    wide = compiled(
        reseed_empty,
        key,
        np.zeros(9, np.int32),
        np.arange(9) < 7,
        clusters=3,
        uid=np.append(uid, [-1, 5]),
    )
    np.testing.assert_array_equal(wide[:7], plain)


def test_padding_fills_no_cluster():
    labels, mask = np.array([0, 0, 0, 1, 2], np.int32), np.arange(5) < 3
    out = compiled(
        reseed_empty, keys.root(0), labels, mask, clusters=3, uid=np.arange(5), rule="when_empty"
    )
    assert sorted(out[:3]) == [0, 1, 2]


def test_a_broken_gradient_is_the_least_similar():
    gradient = np.array([[np.nan, 0.0], [1e6, 0.0]], np.float32)
    broken, far = compiled(move_similarity, gradient, np.ones(2, np.float32), how="euclidean")
    assert broken < far < 0
