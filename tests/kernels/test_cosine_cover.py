import jax
import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from cfljax.kernels import blocks
from cfljax.kernels.cosine import cosine_matrix, cosine_rows
from cfljax.kernels.cover import ccs_threshold, cover
from tests.kernels.compiled import compiled
from tests.often import rarely

rng = np.random.default_rng(0)


def vectors(n, d):
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[n // 2] = 0
    x[-1] = x[0]
    return x


@pytest.mark.parametrize(("n", "d"), [(1, 3), (9, 1), (30, 17), (12, 9000)])
def test_cosines_are_sklearns_but_for_the_zero_vector_with_itself(n, d):
    x = vectors(n, d)
    wanted = cosine_similarity(x.astype(np.float64))
    np.fill_diagonal(wanted, 1)
    out = compiled(cosine_matrix, x)
    np.testing.assert_allclose(out, wanted, atol=1e-5)
    assert (np.diag(out) == 1).all() and (out == out.T).all()
    other = vectors(5, d)
    np.testing.assert_allclose(
        compiled(cosine_matrix, x, other), cosine_similarity(x, other), atol=1e-5
    )


def test_no_cosine_is_beyond_one():
    x = rng.normal(size=(300, 7)).astype(np.float32)  # some products with themselves round to more
    twice = np.concatenate([x, x, -x])
    rows = compiled(cosine_rows, x, x), compiled(cosine_rows, x, -x)
    for out in (
        compiled(cosine_matrix, x, x),
        compiled(cosine_matrix, x, -x),
        compiled(cosine_matrix, twice),
        *rows,
    ):
        assert np.abs(out).max() == 1


def test_huge_and_tiny_rows_are_as_good_as_any():
    x = vectors(8, 50)
    scaled = x * np.float32([1e30, 1e-30, 1, 1e38 / 5, 1, 1e-33, 1, 1])[:, None]
    np.testing.assert_allclose(
        compiled(cosine_matrix, scaled), compiled(cosine_matrix, x), atol=1e-5
    )


def test_masked_rows_are_zero_and_broken_rows_are_zero_vectors():
    x = vectors(6, 4)
    x[1], x[2, 0] = np.nan, np.inf
    out = compiled(cosine_matrix, x, None, np.array([1, 0, 1, 1, 1, 1], bool))
    assert not out[1].any() and not out[:, 1].any()
    assert out[2].tolist() == [0, 0, 1, 0, 0, 0]


def test_cosine_rows_is_the_diagonal():
    a, b = vectors(9, 5000), vectors(9, 5000)
    np.testing.assert_allclose(
        compiled(cosine_rows, a, b), np.diag(compiled(cosine_matrix, a, b)), atol=1e-5
    )
    np.testing.assert_allclose(
        compiled(cosine_rows, a, b[0]), compiled(cosine_matrix, a, b)[:, 0], atol=1e-5
    )
    one, zero = (
        np.eye(2, 5000, dtype=np.float32),
        np.zeros((2, 5000), np.float32),
    )  # where only one of the two is zero
    assert (
        compiled(cosine_rows, zero, one).tolist()
        == compiled(cosine_rows, one, zero).tolist()
        == [0, 0]
    )


def plain_cover(similarity, threshold, mask):
    left, labels, number = set(np.flatnonzero(mask)), np.full(len(mask), -1), 0
    while left:
        near = {
            i: {j for j in left if j == i or similarity[i, j] >= threshold} for i in sorted(left)
        }
        founder = max(sorted(left), key=lambda i: len(near[i]))
        for j in near[founder]:
            labels[j] = number
        left, number = left - near[founder], number + 1
    return labels, number


def test_cover_equals_a_plain_program_on_tied_and_masked_graphs():
    many = jax.jit(jax.vmap(cover))
    similarity = np.round(rng.uniform(-1, 1, (500, 12, 12)), 1).astype(np.float32)
    similarity = np.maximum(similarity, similarity.transpose(0, 2, 1))
    mask, threshold = rng.random((500, 12)) < 0.8, rng.uniform(0, 1, 500).astype(np.float32)
    mask[0] = False
    found, clusters = many(similarity, threshold, mask)
    for i in range(500):
        labels, number = plain_cover(similarity[i], threshold[i], mask[i])
        np.testing.assert_array_equal(found[i], labels)
        assert clusters[i] == number


def test_cover_of_zero_vectors_ends():
    labels, clusters = compiled(cover, np.zeros((4, 4), np.float32), 0.5)
    assert labels.tolist() == [0, 1, 2, 3] and clusters == 4
    labels, _ = compiled(cover, np.full((3, 3), np.nan, np.float32), 0.5)
    assert labels.tolist() == [0, 1, 2]
    assert (
        compiled(cover, np.full((4, 4), 0.5, np.float32), 0.5)[1] == 1
    )  # who is as similar as the threshold is a neighbour


def test_threshold_goes_from_theta_to_a_right_angle():
    def eps(loss, loss0, theta=0.1):
        return float(compiled(ccs_threshold, np.float32(loss), np.float32(loss0), 0.05, theta))

    assert eps(2.0, 2.0) == pytest.approx(np.cos(0.1), abs=1e-6)
    assert eps(0.05, 2.0) == 0.0
    assert eps(1.0, 2.0) == pytest.approx(np.cos(0.1 + (np.pi / 2 - 0.1) * 1.0 / 1.95), abs=1e-6)
    assert eps(9.0, 2.0) == eps(2.0, 2.0)  # a loss above the first one
    assert eps(0.0, 2.0) == 0.0  # and one below the target
    assert eps(0.01, 0.04) == 0.0  # the first loss is below the target
    assert eps(np.nan, 2.0) == eps(np.inf, 2.0) == eps(2.0, np.nan) == eps(2.0, 2.0)


@pytest.mark.parametrize(
    "d",
    [
        5,
        blocks.BLOCK_COLUMNS,
        blocks.BLOCK_COLUMNS + 1,
        rarely(2 * blocks.BLOCK_COLUMNS),
        rarely(2 * blocks.BLOCK_COLUMNS + 7),
    ],
)
def test_products_in_blocks_are_those_of_the_whole(d):
    rng = np.random.default_rng(d)
    weights, x = (
        rng.normal(size=(2, 3)).astype(np.float32),
        rng.normal(size=(3, d)).astype(np.float32),
    )
    scale = np.array([0.5, 0.0, 2.0], np.float32)
    exact = x.astype(np.float64) * scale[:, None]
    assert np.allclose(blocks.combine(weights, x, scale), weights @ exact, atol=1e-5)
    assert np.allclose(blocks.product(x, x, scale, scale), exact @ exact.T, rtol=1e-5, atol=1e-3)
