import jax
import numpy as np

from cfljax.kernels.mix import Rule, add_noise, mix_updates, weights_by
from tests.kernels.compiled import compiled, mix_models

rng = np.random.default_rng(0)
MIX = np.array([[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0.25, 0, 0, 0.75]], np.float32)
DELTA = rng.normal(size=(4, 7)).astype(np.float32)
OLD = rng.normal(size=(4, 7)).astype(np.float32)
OLD[2, 0] = -0.0


def test_noise_is_as_wide_as_the_largest_weight_says():
    moved = np.zeros((4, 20_000), np.float32)
    noisy = np.asarray(add_noise(Rule(noise=2.0, key=jax.random.key(0)), MIX, moved))
    np.testing.assert_allclose(noisy.std(axis=1), 2 * MIX.max(axis=1), rtol=0.03)
    assert add_noise(Rule(), MIX, moved) is moved


def test_an_empty_row_keeps_its_model_to_the_bit():
    for function in (mix_updates, mix_models):
        new = compiled(function, MIX, DELTA, OLD).new
        assert new[2].tobytes() == OLD[2].tobytes()


def test_a_broken_old_model_does_not_spread():
    old = OLD.copy()
    old[1] = np.nan
    out = compiled(mix_models, MIX, DELTA, old)
    np.testing.assert_allclose(out.new[[0, 1, 3]], (MIX @ DELTA)[[0, 1, 3]], atol=1e-6)


def test_weights_ignore_what_padding_holds():
    labels, mask = np.array([0, 1, 0], np.int32), np.array([True, True, False])
    a = compiled(weights_by, labels, mask, np.array([1, 2, np.nan], np.float32), clusters=2)
    assert np.isfinite(a).all() and a[0].tolist() == [1, 0, 0]


def test_clusters_have_noise_of_their_own():
    rule, mix, moved = Rule(noise=1.0, key=jax.random.key(0)), np.ones((2, 1), np.float32), np.zeros((2, 5000), np.float32)
    noisy = np.asarray(jax.jit(lambda: add_noise(rule, mix, moved))())
    assert abs(np.corrcoef(noisy)[0, 1]) < 0.1
