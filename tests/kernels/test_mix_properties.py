"""Aggregation against a plain program in float64, for any weights, clusters and broken updates."""

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cfljax.kernels.mix import (
    Rule,
    add_noise,
    mix_updates,
    move_by,
    replace_by,
    weighted_sum,
    weights_by,
)
from tests.kernels.compiled import compiled, mix_models

K, S, D = 3, 6, 4
EXAMPLES = settings(max_examples=60, deadline=None)
numbers = st.integers(-16, 16).map(lambda n: n / 8)
rows_of = lambda count: hnp.arrays(np.float32, (count, D), elements=numbers)  # noqa: E731
broken_rows = st.dictionaries(
    st.integers(0, S - 1), st.sampled_from([np.nan, np.inf, -np.inf, 1e30]), max_size=S
)
weights = hnp.arrays(
    np.float32, (K, S), elements=st.integers(0, 8).map(lambda n: max(n - 3, 0) / 8)
)


def with_broken(rows, broken):
    """The rows with one number of some of them broken, and which are whole."""
    rows, whole = rows.copy(), np.ones(len(rows), bool)
    for row, value in broken.items():
        rows[row, row % D], whole[row] = value, False
    return rows, whole


def plainly(mix, rows, whole, old, replaces):
    """(new models, broken updates that had weight, clusters that had weight and no whole
    update)."""
    new, lost = old.astype(np.float64), np.zeros(len(old), bool)
    for k, row in enumerate(mix.astype(np.float64)):
        used = [s for s in range(len(rows)) if row[s]]
        lost[k] = bool(used) and not any(whole[s] for s in used)
        if used and not lost[k]:
            what = [
                rows[s].astype(np.float64) if whole[s] else old[k] if replaces else np.zeros(D)
                for s in used
            ]
            new[k] = sum(row[s] * each for s, each in zip(used, what, strict=True)) + (
                0 if replaces else old[k]
            )
    return new, sum(not whole[s] and mix[:, s].any() for s in range(len(rows))), lost


def agrees(out, wanted, mix, old):
    new, broken, lost = wanted
    np.testing.assert_allclose(out.new, new, atol=1e-5)
    assert out.nonfinite == broken and out.lost.tolist() == lost.tolist()
    stay = lost | ~mix.any(axis=1)
    assert out.new[stay].tobytes() == old[stay].tobytes()


@EXAMPLES
@given(weights, rows_of(S), rows_of(K), broken_rows)
def test_models_are_mixed_as_a_plain_program_does(mix, rows, old, broken):
    rows, whole = with_broken(rows, broken)
    for function, replaces in ((mix_updates, False), (mix_models, True)):
        agrees(
            compiled(function, mix, rows, old), plainly(mix, rows, whole, old, replaces), mix, old
        )


@EXAMPLES
@given(weights, rows_of(S), rows_of(K), broken_rows, st.permutations(range(S)))
def test_neither_order_nor_participants_without_weight_matter(mix, rows, old, broken, order):
    rows, _ = with_broken(rows, broken)
    wide, garbage = (
        np.pad(mix, ((0, 0), (0, 2))),
        np.concatenate([rows, np.full((2, D), np.nan, np.float32)]),
    )
    for function in (mix_updates, mix_models):
        out, turned = (
            compiled(function, mix, rows, old),
            compiled(function, mix[:, order], rows[order], old),
        )
        padded = compiled(function, wide, garbage, old)
        for other in (turned, padded):
            np.testing.assert_allclose(other.new, out.new, atol=1e-5)
            assert other.nonfinite == out.nonfinite and (other.lost == out.lost).all()


@EXAMPLES
@given(weights, rows_of(S), rows_of(K), broken_rows)
def test_sums_over_parts_of_the_participants_add_up(mix, rows, old, broken):
    rows, _ = with_broken(rows, broken)
    parts = [
        compiled(weighted_sum, mix[:, part], rows[part])
        for part in (np.arange(0, 3), np.arange(3, S))
    ]
    total, whole = parts[0][0] + parts[1][0], np.concatenate([parts[0][1], parts[1][1]])
    for function, finish in ((mix_updates, move_by), (mix_models, replace_by)):
        at_once, added = (
            compiled(function, mix, rows, old),
            compiled(finish, mix, total, whole, old),
        )
        np.testing.assert_allclose(added.new, at_once.new, atol=1e-5)
        assert added.nonfinite == at_once.nonfinite and (added.lost == at_once.lost).all()


@EXAMPLES
@given(
    hnp.arrays(np.int32, S, elements=st.integers(-1, K - 1)),
    hnp.arrays(bool, S),
    hnp.arrays(np.int32, S, elements=st.integers(0, 20)),
    st.sampled_from(["samples", "uniform"]),
)
def test_weights_are_shares_of_the_samples_in_a_cluster(labels, mask, sizes, by):
    found, size = (
        compiled(weights_by, labels, mask, sizes, clusters=K, by=by),
        sizes if by == "samples" else np.ones(S),
    )
    for k in range(K):
        members = [s for s in range(S) if mask[s] and labels[s] == k]
        total = sum(size[s] for s in members)
        shares = [size[s] / total if total and s in members else 0.0 for s in range(S)]
        np.testing.assert_allclose(found[k], shares, atol=1e-6)


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
    rule, mix, moved = (
        Rule(noise=1.0, key=jax.random.key(0)),
        np.ones((2, 1), np.float32),
        np.zeros((2, 5000), np.float32),
    )
    noisy = np.asarray(jax.jit(lambda: add_noise(rule, mix, moved))())
    assert abs(np.corrcoef(noisy)[0, 1]) < 0.1
