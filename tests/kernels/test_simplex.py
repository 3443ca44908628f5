import jax
import numpy as np
import pytest
from scipy.optimize import nnls

from cfljax.kernels.simplex import (
    balance,
    balance_error,
    class_shares,
    cluster_imbalance,
    imbalance_degree,
    imbalance_level,
    minimise,
    project_simplex,
    reshaped_balance,
    rfedavg_weights,
)
from tests.kernels.compiled import compiled

rng = np.random.default_rng(0)
solve = jax.jit(jax.vmap(balance))


def objective(shares, p):
    return float(((np.asarray(p, np.float64) @ shares - 1 / shares.shape[1]) ** 2).sum())


def exact(shares, active):
    """Least squares with Σp = 1 as a heavy row, in float64, polished on its support."""
    rows = shares[active].astype(np.float64)
    centred = np.vstack([(rows - 1 / rows.shape[1]).T, 1e4 * np.ones(len(rows))])
    p = nnls(centred, np.append(np.zeros(rows.shape[1]), 1e4))[0]
    full = np.zeros(len(shares))
    full[active] = p / p.sum()
    return objective(shares, full)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
def test_q1_is_optimal_to_1e_6(alpha):
    shares = rng.dirichlet([alpha] * 10, (170, 12)).astype(np.float32)
    shares[::7, 3] = shares[::7, 4]  # duplicates
    active = rng.random((170, 12)) < 0.7
    active[:, 0] = True
    p = np.asarray(solve(shares, active))
    assert (p >= 0).all() and np.allclose(p.sum(1), 1, atol=1e-5) and not p[~active].any()
    for i in range(170):
        assert objective(shares[i], p[i]) <= exact(shares[i], active[i]) + 1e-6


@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_q1_with_many_clusters(alpha):
    shares = rng.dirichlet([alpha] * 10, 100).astype(np.float32)
    p = jax.jit(balance)(shares, np.ones(100, bool))
    assert objective(shares, p) <= exact(shares, np.ones(100, bool)) + 1e-6


def test_q1_in_trivial_cases():
    one_class = np.eye(4, dtype=np.float32)
    np.testing.assert_allclose(compiled(balance, one_class, np.ones(4, bool)), 0.25, atol=1e-4)
    assert compiled(balance, one_class, np.arange(4) == 2).tolist() == [0, 0, 1, 0]
    assert not compiled(balance, one_class, np.zeros(4, bool)).any()
    same = np.full((3, 4), 0.25, np.float32)
    np.testing.assert_allclose(compiled(balance, same, np.ones(3, bool)), 1 / 3, atol=1e-6)


def test_a_quadratic_form_is_least_where_no_active_slope_is_below_the_mean():
    """The conditions of Karush, Kuhn and Tucker: slopes are equal where p > 0, and not smaller
    elsewhere."""
    rows = rng.normal(size=(60, 9, 5)).astype(np.float32)
    gram = rows @ rows.transpose(0, 2, 1) + 0.1 * rng.random((60, 9, 1)).astype(
        np.float32
    ) * np.eye(9, dtype=np.float32)
    linear, active = rng.normal(size=(60, 9)).astype(np.float32), rng.random((60, 9)) < 0.7
    active[:, 0] = True
    scale = np.trace(gram, axis1=1, axis2=2)[:, None, None]
    p = np.asarray(
        jax.jit(jax.vmap(minimise))(gram / scale, linear / scale[:, :, 0], active), np.float64
    )
    assert (
        np.allclose(p.sum(1), 1, atol=1e-5)
        and not p[~active].any()
        and (p > 0).sum() < active.sum()
    )
    for each, form, b, on in zip(p, gram / scale, linear / scale[:, :, 0], active, strict=True):
        slope = 2 * (form @ each - b)
        assert slope @ each - slope[on].min() < 1e-6


def plain_projection(values):
    ranked = np.sort(values)[::-1]
    shifts = (np.cumsum(ranked) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - shifts[np.flatnonzero(ranked > shifts)[-1]], 0)


def test_projection_onto_the_simplex():
    values = (rng.normal(size=(200, 9)) * 3).astype(np.float32)
    values[:20] = values[:20].round()  # ties
    active = rng.random((200, 9)) < 0.7
    active[:, 2] = True
    out = np.asarray(jax.jit(jax.vmap(project_simplex))(values, active))
    for i in range(200):
        np.testing.assert_allclose(
            out[i][active[i]], plain_projection(values[i][active[i]].astype(np.float64)), atol=1e-5
        )
        assert not out[i][~active[i]].any()


def federation(samples=60):
    counts = rng.integers(0, samples, (9, 5)).astype(np.float32)
    labels = rng.integers(0, 4, 9).astype(np.int32)
    labels[rng.integers(0, 9)] = -1
    return counts, labels


def test_cluster_imbalance_satisfies_the_identity():
    for _ in range(20):
        counts, labels = federation()
        total = counts.sum()
        level = compiled(imbalance_level, counts, total)
        np.testing.assert_allclose(level, np.abs(total / 5 - counts).sum(1), rtol=1e-5)
        found, filled = compiled(cluster_imbalance, labels, level, counts.sum(1), clusters=5)
        for k in range(5):
            who = np.flatnonzero(labels == k)
            assert filled[k] == bool(who.size)
            if who.size:
                lead = who[level[who].argmax()]
                wanted = (
                    total - counts[who].sum() + 2 * np.maximum(counts[lead] - total / 5, 0).sum()
                )
                assert found[k] == pytest.approx(wanted, rel=1e-4, abs=1e-2)


def test_rfedavg_weights_are_inverse_imbalance():
    counts, labels = federation()
    level = compiled(imbalance_level, counts, counts.sum())
    found, filled = compiled(cluster_imbalance, labels, level, counts.sum(1), clusters=5)
    p = compiled(rfedavg_weights, labels, level, counts.sum(1), clusters=5)
    wanted = np.where(filled, 1 / np.maximum(found, 1), 0)
    np.testing.assert_allclose(p, wanted / wanted.sum(), rtol=1e-5)
    assert p[4] == 0
    assert not compiled(rfedavg_weights, np.full(9, -1), level, counts.sum(1), clusters=5).any()


def test_one_cluster_with_all_samples_has_the_whole_weight():
    counts = np.full((3, 5), 4, np.float32)
    labels = np.zeros(3, np.int32)
    level = compiled(imbalance_level, counts, counts.sum())
    assert compiled(cluster_imbalance, labels, level, counts.sum(1), clusters=2)[0][0] == 0
    assert compiled(rfedavg_weights, labels, level, counts.sum(1), clusters=2).tolist() == [1, 0]


def test_shares_and_reshaped_balance():
    counts, labels = federation()
    shares, active = compiled(class_shares, labels, counts, clusters=5)
    for k in range(5):
        sums = counts[labels == k].sum(0)
        assert active[k] == (sums.sum() > 0)
        np.testing.assert_allclose(shares[k], sums / max(sums.sum(), 1), atol=1e-6)
    p = np.array([0.1, 0.2, 0.3, 0.4, 0], np.float32)
    b = compiled(reshaped_balance, p, shares)
    np.testing.assert_allclose(b, p @ shares, atol=1e-6)
    assert compiled(balance_error, b) == pytest.approx(((b - 0.2) ** 2).sum(), abs=1e-6)
    assert compiled(imbalance_degree, b) == pytest.approx(b.max() / b.min(), rel=1e-5)
    assert imbalance_degree(np.array([0.5, 0.0], np.float32)) == np.inf


def test_a_cluster_of_members_without_samples_is_not_active():
    shares, active = compiled(
        class_shares, np.int32([0, 1, 1]), np.float32([[1, 3], [0, 0], [0, 0]]), clusters=2
    )
    assert active.tolist() == [True, False] and not shares[1].any()


def test_of_equally_imbalanced_members_the_first_leads():
    found, _ = compiled(
        cluster_imbalance, np.int32([0, 0]), np.float32([9, 9]), np.float32([5, 2]), clusters=1
    )
    assert found[0] == 9 - 2
