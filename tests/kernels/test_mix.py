import jax
import numpy as np
import pytest

from cfljax.kernels.mix import Rule, add_noise, mix_updates, usable, weights_by
from tests.kernels.compiled import compiled, mix_models

rng = np.random.default_rng(0)
MIX = np.array([[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0.25, 0, 0, 0.75]], np.float32)
DELTA = rng.normal(size=(4, 7)).astype(np.float32)
OLD = rng.normal(size=(4, 7)).astype(np.float32)
OLD[2, 0] = -0.0


def test_updates_are_added_by_weight():
    out = compiled(mix_updates, MIX, DELTA, OLD)
    np.testing.assert_allclose(out.new, OLD + MIX @ DELTA, atol=1e-6)
    assert out.nonfinite == 0 and not out.lost.any()


def test_noise_is_as_wide_as_the_largest_weight_says():
    moved = np.zeros((4, 20_000), np.float32)
    noisy = np.asarray(add_noise(Rule(noise=2.0, key=jax.random.key(0)), MIX, moved))
    np.testing.assert_allclose(noisy.std(axis=1), 2 * MIX.max(axis=1), rtol=0.03)
    assert add_noise(Rule(), MIX, moved) is moved


def test_an_update_whose_norm_is_no_float32_counts_as_broken():
    delta = DELTA.copy()
    delta[1], delta[2, 0], delta[3, 6] = 1e30, np.inf, np.nan
    assert np.asarray(usable(jax.numpy.asarray(delta))).tolist() == [True, False, False, False]
    assert compiled(mix_updates, MIX, delta, OLD).nonfinite == 3


def test_an_empty_row_keeps_its_model_to_the_bit():
    for function in (mix_updates, mix_models):
        new = compiled(function, MIX, DELTA, OLD).new
        assert new[2].tobytes() == OLD[2].tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_broken_update_touches_only_clusters_that_used_it(bad):
    delta = DELTA.copy()
    delta[2, 3] = bad
    out, clean = compiled(mix_updates, MIX, delta, OLD), compiled(mix_updates, MIX, DELTA, OLD)
    assert out.nonfinite == 1 and out.lost.tolist() == [False, True, False, False]
    assert out.new[1].tobytes() == OLD[1].tobytes()
    np.testing.assert_array_equal(out.new[[0, 2, 3]], clean.new[[0, 2, 3]])


def test_a_broken_update_counts_as_no_change_for_both_forms():
    delta = DELTA.copy()
    delta[3] = np.nan
    wanted = OLD[3] + 0.25 * DELTA[0]
    np.testing.assert_allclose(compiled(mix_updates, MIX, delta, OLD).new[3], wanted, atol=1e-6)
    models = delta + OLD[3]
    np.testing.assert_allclose(compiled(mix_models, MIX, models, OLD).new[3], wanted, atol=1e-6)


def test_a_broken_update_without_weight_is_not_counted():
    delta = DELTA.copy()
    delta[1] = np.nan
    mix = MIX.copy()
    mix[0] = [1, 0, 0, 0]
    out = compiled(mix_updates, mix, delta, OLD)
    assert out.nonfinite == 0 and np.isfinite(out.new).all()


def test_a_broken_old_model_does_not_spread():
    old = OLD.copy()
    old[1] = np.nan
    out = compiled(mix_models, MIX, DELTA, old)
    np.testing.assert_allclose(out.new[[0, 1, 3]], (MIX @ DELTA)[[0, 1, 3]], atol=1e-6)


@pytest.mark.parametrize("by", ["samples", "uniform"])
def test_weights_are_those_of_a_plain_loop(by):
    for _ in range(20):
        labels, mask = rng.integers(-1, 4, 9).astype(np.int32), rng.random(9) < 0.7
        sizes = rng.integers(0, 5, 9).astype(np.float32)
        wanted = np.zeros((5, 9))
        for k in range(5):
            who = [s for s in range(9) if labels[s] == k and mask[s]]
            total = sum(sizes[s] if by == "samples" else 1 for s in who)
            for s in who:
                wanted[k, s] = (sizes[s] if by == "samples" else 1) / total if total else 0
        out = compiled(weights_by, labels, mask, sizes, clusters=5, by=by)
        np.testing.assert_allclose(out, wanted, atol=1e-7)


def test_weights_ignore_what_padding_holds():
    labels, mask = np.array([0, 1, 0], np.int32), np.array([True, True, False])
    a = compiled(weights_by, labels, mask, np.array([1, 2, np.nan], np.float32), clusters=2)
    assert np.isfinite(a).all() and a[0].tolist() == [1, 0, 0]


def test_runs_are_batched():
    many = jax.jit(jax.vmap(mix_updates))(np.stack([MIX] * 3), np.stack([DELTA] * 3), np.stack([OLD] * 3))
    np.testing.assert_allclose(np.asarray(many.new)[1], OLD + MIX @ DELTA, atol=1e-6)
    assert many.lost.shape == (3, 4)


def test_shapes_are_checked():
    with pytest.raises(AssertionError):
        mix_updates(MIX[:, :3], DELTA, OLD)


def test_clusters_have_noise_of_their_own():
    rule, mix, moved = Rule(noise=1.0, key=jax.random.key(0)), np.ones((2, 1), np.float32), np.zeros((2, 5000), np.float32)
    noisy = np.asarray(jax.jit(lambda: add_noise(rule, mix, moved))())
    assert abs(np.corrcoef(noisy)[0, 1]) < 0.1


def test_a_broken_update_that_several_clusters_use_is_one():
    delta = np.array([[1.0, 1.0], [np.nan, 1.0]], np.float32)
    assert compiled(mix_updates, np.full((3, 2), 0.5, np.float32), delta, np.zeros((3, 2), np.float32)).nonfinite == 1
