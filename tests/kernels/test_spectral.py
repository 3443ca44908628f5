import numpy as np
import pytest

from cfljax.kernels.cosine import madc
from cfljax.kernels.spectral import edc_between, edc_embedding, leading_directions
from tests.kernels.compiled import compiled
from tests.often import rarely

rng = np.random.default_rng(0)


def decaying(n, d, rate=0.6):
    u, v = (
        np.linalg.qr(rng.normal(size=(n, min(n, d))))[0],
        np.linalg.qr(rng.normal(size=(d, min(n, d))))[0],
    )
    return ((u * rate ** np.arange(min(n, d))) @ v.T).astype(np.float32)


def plain_embedding(x, m):
    x = x.astype(np.float64)
    v = np.linalg.svd(x, full_matrices=False)[2][:m]
    v *= np.sign(v[np.arange(len(v)), np.abs(v).argmax(1)])[:, None]
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x @ v.T, norm, where=norm > 0, out=np.zeros((len(x), len(v))))


@pytest.mark.parametrize(
    ("how", "n", "d"),
    [
        ("gram", 40, 18),
        ("randomised", 24, 5000),
        rarely("gram", 24, 5000),
        rarely("randomised", 40, 18),
    ],
)
def test_directions_are_numpys(n, d, how):
    x = decaying(n, d)
    x[3] = 0
    x[5] = x[4]
    rows, found = compiled(leading_directions, x, m=4, how=how)
    values = np.linalg.svd(x.astype(np.float64), compute_uv=False)[:4]
    np.testing.assert_allclose(found, values, atol=1e-5)
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-5)
    np.testing.assert_allclose(
        compiled(edc_embedding, x, m=4, how=how), plain_embedding(x, 4), atol=2e-5
    )


@pytest.mark.parametrize(("n", "d"), [(120, 90), (60, 400)])
def test_eigenvectors_are_a_start_that_is_exact_already(n, d):
    """Singular values that fall too slowly for a pass over the data to make much of a poor
    start."""
    x = 1e3 * decaying(n, d, rate=0.99)
    _, found = compiled(leading_directions, x, m=4, how="gram")
    values = np.linalg.svd(x.astype(np.float64), compute_uv=False)[:4]
    np.testing.assert_allclose(found, values, rtol=1e-5)


def test_small_directions_keep_their_digits():
    x = decaying(
        12, 300, rate=0.02
    )  # the fourth singular value is 8e-6 of the first: its square is lost in a Gram matrix
    rows, _ = compiled(leading_directions, x, m=4)
    exact = np.linalg.svd(x.astype(np.float64), full_matrices=False)[2][:4]
    assert np.abs((rows * exact).sum(1)) == pytest.approx([1, 1, 1, 1], abs=0.02)


@pytest.mark.parametrize("n", [1, 2, 8])
def test_too_few_directions_are_zero(n):
    x = np.tile(rng.normal(size=(1, 30)), (n, 1)).astype(np.float32)
    out = compiled(edc_embedding, x, m=3)
    np.testing.assert_allclose(np.abs(out), np.tile([1, 0, 0], (n, 1)), atol=1e-5)
    assert not compiled(edc_embedding, 0 * x, m=3).any()


def test_padding_and_broken_rows_are_invisible():
    x = decaying(10, 200)
    wide = np.concatenate(
        [x, np.full((2, 200), np.nan, np.float32), 1e30 * np.ones((1, 200), np.float32)]
    )
    mask = np.arange(13) != 12
    for how in ("gram", "randomised"):
        plain = compiled(edc_embedding, x, m=4, how=how)
        out = compiled(edc_embedding, wide, m=4, mask=mask, how=how)
        np.testing.assert_allclose(out[:10], plain, atol=1e-5)
        assert not out[10:].any()


@pytest.mark.parametrize("how", ["gram", "randomised"])
@pytest.mark.parametrize(("n", "d"), [(10, 200), (40, 18)])
def test_scale_does_not_matter(n, d, how):
    x = decaying(n, d)
    plain = compiled(edc_embedding, x, m=4, how=how)
    for factor in (1e30, 1e3, 1e-3, 1e-30):
        np.testing.assert_allclose(
            compiled(edc_embedding, x * np.float32(factor), m=4, how=how), plain, atol=1e-5
        )


def test_edc_is_the_distance_of_embeddings_over_m():
    x = decaying(9, 60)
    e = plain_embedding(x, 3)
    wanted = np.linalg.norm(e[:, None] - e[None], axis=2) / 3
    np.testing.assert_allclose(
        compiled(edc_between, compiled(edc_embedding, x, m=3)), wanted, atol=1e-5
    )


def plain_madc(cosines, present):
    n = len(cosines)
    out = np.zeros((n, n))
    for i in present:
        for j in present:
            z = [k for k in present if k not in (i, j)]
            if i != j and z:
                out[i, j] = np.abs(cosines[i, z] - cosines[j, z]).mean()
    return out


@pytest.mark.parametrize("n", [1, 2, 3, 25])
def test_madc_leaves_out_both_ends(n):
    x = rng.normal(size=(n, 5))
    x[n // 2] = 0
    cosines = np.corrcoef(x + 1e-9 * rng.normal(size=x.shape)).reshape(n, n).astype(np.float32)
    out = compiled(madc, cosines)
    np.testing.assert_allclose(out, plain_madc(cosines.astype(np.float64), range(n)), atol=1e-5)
    assert (out == out.T).all()
    mask = np.arange(n) != n - 1
    cosines[-1, :-1] = np.nan
    np.testing.assert_allclose(
        compiled(madc, cosines, mask), plain_madc(cosines, range(n - 1)), atol=1e-5
    )
