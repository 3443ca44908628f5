"""The number of clusters against plain loops over scikit-learn's definitions, and where nothing
speaks for a division."""

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from cfljax.kernels.host import CRITERIA, CURVE_FACTOR, LEAST_SILHOUETTE, choose_number


def groups(number, each=8, noise=0.3, seed=0, d=30):
    rng = np.random.default_rng(seed)
    centres = 5 * np.eye(d)[:number] + 3.0  # what all have in common is no reason to divide
    return (centres[:, None] + noise * rng.normal(size=(number, each, d))).reshape(-1, d)


def cosines(rows):
    own = rows - rows.mean(axis=0)
    return np.array([[a @ b / np.sqrt((a @ a) * (b @ b)) for b in own] for a in own])


def silhouette(apart, labels):
    scores = []
    for i, own in enumerate(labels):
        same = [apart[i, j] for j in range(len(labels)) if labels[j] == own and j != i]
        others = [np.mean(apart[i, labels == k]) for k in set(labels) - {own}]
        scores.append(
            (min(others) - np.mean(same)) / max(min(others), np.mean(same)) if same else 0.0
        )
    return np.mean(scores)


@pytest.mark.parametrize("how", CRITERIA)
@pytest.mark.parametrize("number", [2, 3, 5, 8])
def test_groups_are_counted(how, number):
    found = choose_number(groups(number), 8, how)
    assert found.clusters == number and found.curve.shape == (CURVE_FACTOR * 8,)


@pytest.mark.parametrize("how", CRITERIA)
@pytest.mark.parametrize("rows", [
    groups(1, each=40, noise=1.0), np.ones((12, 5)), np.zeros((12, 5)), 1.0 + 1e-9 * groups(3), np.full((6, 3), np.nan),
    np.eye(3)[:1], np.eye(3)[:2], groups(12),
], ids=("noise", "equal", "zero", "rounding", "broken", "one", "two", "too many"))  # fmt: skip
def test_without_a_reason_there_is_one_cluster(how, rows):
    assert choose_number(rows, 8, how).clusters == 1


def test_silhouettes_are_those_of_average_linkage():
    rows = groups(4, noise=1.5)
    apart = np.clip(1 - cosines(rows), 0, 2)
    np.fill_diagonal(apart, 0)
    tree = hierarchy.linkage(squareform(apart, checks=False), "average")
    curve = choose_number(rows, 4).curve
    wanted = [LEAST_SILHOUETTE] + [
        silhouette(apart, hierarchy.fcluster(tree, k, "maxclust")) for k in range(2, 9)
    ]
    np.testing.assert_allclose(curve, wanted, atol=1e-9)


def test_gaps_are_those_of_the_normalised_laplacian():
    rows = groups(4, noise=1.5)
    near = np.maximum(cosines(rows), 0) * (1 - np.eye(len(rows)))
    walk = near / near.sum(axis=1)[:, None]  # similar to the symmetric form: the same eigenvalues
    steps = np.diff(np.sort(1 - np.linalg.eigvals(walk).real))
    np.testing.assert_allclose(choose_number(rows, 4, "eigengap").curve, steps[:8], atol=1e-9)


@pytest.mark.parametrize("how", CRITERIA)
def test_the_order_and_broken_rows_do_not_matter(how):
    rows = groups(3, noise=1.0)
    order = np.random.default_rng(1).permutation(len(rows))
    broken = np.insert(rows[order], [2, 5], [[np.nan], [np.inf]], axis=0)
    one, other = choose_number(rows, 6, how), choose_number(broken, 6, how)
    assert one.clusters == other.clusters == 3
    np.testing.assert_allclose(one.curve, other.curve, atol=1e-9)


def test_few_rows_have_no_value_for_many_clusters():
    found = choose_number(groups(2, each=3), 8)
    assert (
        found.clusters == 2
        and np.isfinite(found.curve[:5]).all()
        and np.isnan(found.curve[5:]).all()
    )


def test_an_unknown_criterion_is_named():
    with pytest.raises(ValueError, match='by "elbow"'):
        choose_number(np.eye(4), 3, "elbow")
