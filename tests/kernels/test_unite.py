"""Unions of clusters: by similarity as in a plain loop over sorted pairs, and by complete linkage
as in scipy."""

import jax
import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from cfljax.kernels.unite import complete_linkage, unite

rng = np.random.default_rng(3)
united = jax.jit(unite, static_argnums=4)
linked = jax.jit(complete_linkage)


def symmetric(n):
    x = rng.normal(size=(n, n)).astype(np.float32)
    return (x + x.T) / 2


def by_pairs(similar, threshold, size, present, owners):
    """(root, kept): the sorted pairs one after another."""
    n = len(size)
    root, kept, size = list(range(n)), list(range(n)), list(size)
    pairs = [
        (-similar[a, b], a, b)
        for a in range(n)
        for b in range(a + 1, n)
        if present[a] and present[b]
    ]
    for less, a, b in sorted(pairs):
        i, j = sorted((root[a], root[b]))
        if -less < threshold or i == j:
            continue
        if j < owners and size[j] > size[i]:
            kept[i] = kept[j]
        size[i] += size[j]
        root = [i if r == j else r for r in root]
    return root, kept


@pytest.mark.parametrize("threshold", [-0.5, 0.4, 1.0, 9.0])
def test_pairs_are_united_the_most_similar_first(threshold):
    for _ in range(20):
        similar, present, size = (
            symmetric(9),
            rng.random(9) < 0.8,
            rng.integers(1, 5, 9).astype(np.float32),
        )
        root, kept = united(similar, threshold, size, present, 5)
        wanted, keeps = by_pairs(similar, threshold, size, present, 5)
        assert root.tolist() == wanted
        assert [int(kept[r]) for r in set(wanted)] == [keeps[r] for r in set(wanted)]


def test_a_union_keeps_the_model_of_its_largest_part_that_has_one():
    similar = np.zeros((4, 4), np.float32)
    similar[0, 1] = similar[1, 0] = similar[0, 3] = similar[3, 0] = 1.0
    for size, kept in (([1, 3, 1, 9], 1), ([3, 3, 1, 9], 0)):  # the fourth has no model
        found = united(similar, 0.5, np.float32(size), np.ones(4, bool), 3)
        assert found[0].tolist() == [0, 0, 2, 0] and int(found[1][0]) == kept


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8, 2.0])
def test_complete_linkage_is_scipys(threshold):
    for n in (2, 8):
        for _ in range(20):
            far = np.abs(symmetric(n)).astype(np.float64)
            np.fill_diagonal(far, 0)
            wanted = fcluster(
                linkage(squareform(far, checks=False), "complete"), threshold, "distance"
            )
            root = np.asarray(linked(far.astype(np.float32), threshold))
            assert (root == [list(wanted).index(w) for w in wanted]).all()


def test_what_cannot_be_compared_stays_alone():
    far = np.full((4, 4), 0.1, np.float32)
    far[1], far[:, 1], far[2, 3], far[3, 2] = np.inf, np.inf, np.nan, np.nan
    assert linked(far, np.inf).tolist() == [0, 1, 0, 3]
    assert linked(far, -1.0).tolist() == [0, 1, 2, 3]
