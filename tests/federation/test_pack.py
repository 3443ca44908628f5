"""Packing: the pool once, compact rows, and paddings that leave every client's samples alone."""

import warnings

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfljax.errors import DataError, DataWarning
from cfljax.federation.common import (
    deal,
    even_sizes,
    group_blocks,
    mirror,
    proportional_sizes,
    split_at,
)
from cfljax.federation.labels import Classes, classes
from cfljax.federation.pack import count_bytes, pack
from cfljax.types import Parts
from tests.federation.helpers import fake, parts, with_users


def held(split, c):
    """Rows of client c."""
    return np.asarray(split.rows)[split.start[c] : split.start[c] + split.count[c]]


def images(federation, split, c):
    rows = held(split, c)
    return federation.pool.x[rows], federation.pool.y[rows]


@pytest.mark.parametrize("options", [{}, {"test": "global"}, {"samples_per_client": 10}])
def test_every_client_has_its_samples_wherever_the_pool_keeps_them(options):
    source = fake()
    made = parts("iid", source, clients=20, **options)
    federation = pack(made, source)
    x, y = (
        np.concatenate([source.x_train, source.x_test]),
        np.concatenate([source.y_train, source.y_test]),
    )
    for c in range(20):
        tested = made.test if options.get("test") else made.test[c]
        for split, rows in ((federation.train, made.train[c]), (federation.test, tested)):
            found_x, found_y = images(federation, split, c)
            assert np.array_equal(found_x, x[rows]) and np.array_equal(found_y, y[rows])
    assert federation.test.shared == (options.get("test") == "global")
    assert (
        federation.uid.tolist() == list(range(20))
        and federation.clients == 20
        and federation.classes == 10
    )
    assert federation.train.longest == federation.train.count.max()
    rest = (federation.train, federation.test, federation.uid, federation.group, federation.arrive)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(rest)}
    assert dtypes == {np.dtype(np.int32)} and federation.pool.x.dtype == np.uint8


def test_unused_rows_leave_the_pool_only_where_that_saves_a_tenth():
    source = fake()
    assert len(pack(parts("iid", source, clients=20, samples_per_client=10), source).pool.y) == 500
    assert len(pack(parts("iid", source, clients=20, samples_per_client=58), source).pool.y) == 1500


def test_what_a_client_holds_lies_together_in_the_pool():
    source = fake()
    federation = pack(parts("iid", source, clients=20, samples_per_client=58), source)
    held_rows = np.concatenate(
        [held(split, c) for split in (federation.train, federation.test) for c in range(20)]
    )
    assert np.array_equal(held_rows, np.arange(len(held_rows))) and len(federation.pool.y) > len(
        held_rows
    )
    everything = np.concatenate([source.x_train, source.x_test])
    assert np.array_equal(
        *(np.unique(x.reshape(1500, -1), axis=0) for x in (federation.pool.x, everything))
    )


def test_samples_that_many_hold_stay_once_in_the_pool():
    source = fake()
    both = Parts(
        [np.array([7, 3, 5]), np.array([5, 9, 3])], np.array([1400, 1300]), np.array([-1, -1])
    )
    federation = pack(both, source)
    assert [images(federation, federation.train, c)[1].tolist() for c in range(2)] == [
        source.y_train[[7, 3, 5]].tolist(), source.y_train[[5, 9, 3]].tolist(),
    ]  # fmt: skip
    assert held(federation.train, 0).tolist() == [0, 1, 2] and held(
        federation.train, 1
    ).tolist() == [2, 3, 1]
    assert held(federation.test, 0).tolist() == [4, 5] and len(federation.pool.y) == 6


def test_a_thousand_unequal_clients_cost_about_the_pool():
    source = fake(60_000, 10_000, shape=(28, 28))
    federation = pack(parts("fedprox", source), source)
    assert federation.train.longest > 800
    assert count_bytes(federation) < 1.02 * (source.x_train.nbytes + source.x_test.nbytes)


@pytest.mark.parametrize("how", ["pixel", "pixel_all"])
def test_pixels_are_standardised_by_what_clients_train_on_or_by_all_images_of_the_source(how):
    source = fake(shape=(3, 3))
    made = parts("iid", source, clients=20, samples_per_client=5)
    federation = pack(made, source, how)
    x = np.concatenate(
        [source.x_train, source.x_test]
        if how == "pixel_all"
        else [source.x_train[np.concatenate(made.train)]]
    )
    x = x.astype(np.float64)
    assert np.allclose(federation.pool.mean, x.mean(0), rtol=1e-6)
    added = 0.001 if how == "pixel_all" else 0  # as FedProx's program
    assert np.allclose(federation.pool.scale, 1 / (x.std(0) + added), rtol=1e-6)
    assert federation.pool.mean.dtype == federation.pool.scale.dtype == np.float32


def test_bytes_are_divided_by_255_and_other_numbers_left_alone():
    source = fake()
    made = parts("iid", source, clients=2)
    assert pack(made, source).pool.scale == np.float32(1 / 255)
    assert pack(made, source, "none").pool.scale == 1
    floats = source._replace(
        x_train=source.x_train.astype(np.float32), x_test=source.x_test.astype(np.float32)
    )
    assert pack(made, floats).pool.scale == 1 and pack(made, floats).pool.x.dtype == np.float32
    with pytest.raises(ValueError, match="pixels"):
        pack(made, source, "pixels")


def test_clients_without_training_or_test_samples_are_clients():
    source = with_users(fake())
    federation = pack(parts("user", source, test_only="keep"), source)
    assert federation.train.count[-3:].tolist() == [0, 0, 0] and np.all(
        federation.test.count[-3:] > 0
    )
    nothing = pack(
        Parts([np.arange(3), np.arange(3, 5)], [np.zeros(0, np.int64)] * 2, np.zeros(2)), source
    )
    assert (
        nothing.test.count.tolist() == [0, 0]
        and nothing.test.longest == 1
        and len(nothing.test.rows) == 1
    )


def test_rows_beyond_the_source_are_refused():
    with pytest.raises(DataError, match="row 1500 of 1500"):
        pack(Parts([np.array([1500])], [np.array([0])], np.zeros(1)), fake())


def test_arrivals_are_kept():
    source = fake()
    assert pack(
        parts("iid", source, clients=3), source, arrive=np.array([0, 5, 9])
    ).arrive.tolist() == [0, 5, 9]


sizes_of_groups = st.integers(1, 60)


@given(total=st.integers(0, 10_000), number=sizes_of_groups, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_sizes_sum_to_the_total(total, number, seed):
    even = even_sizes(total, number)
    shares = proportional_sizes(total, np.random.default_rng(seed).dirichlet(np.ones(number)))
    assert even.sum() == shares.sum() == total and np.ptp(even) <= 1 and shares.min() >= 0
    assert [len(p) for p in split_at(np.arange(total), even)] == even.tolist()
    blocks = np.bincount(group_blocks(number + 5, number), minlength=number)
    assert blocks.min() >= 1 and np.ptp(blocks) <= 1


@given(clients=st.integers(1, 12), classes=st.integers(1, 6), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_dealt_rows_are_distinct_of_the_right_class_and_as_many_as_asked(clients, classes, seed):
    rng = np.random.default_rng(seed)
    source = fake(200, 90, classes=classes, seed=seed, balanced=False)
    counts = rng.integers(0, 200 // classes // clients // 3 + 1, (clients, classes))
    have = np.bincount(source.y_train, minlength=classes)
    counts = np.minimum(counts, have // clients)
    dealt = deal(counts, np.arange(200), source, rng)
    for c, rows in enumerate(dealt):
        assert np.array_equal(np.bincount(source.y_train[rows], minlength=classes), counts[c])
    assert len(np.unique(np.concatenate(dealt))) == counts.sum()
    test = mirror(counts, 200 + np.arange(90), source, rng)
    flat = np.concatenate(test)
    assert (
        len(test) == clients
        and len(np.unique(flat)) == len(flat)
        and np.all((flat >= 200) & (flat < 290))
    )
    scale = min(
        (np.bincount(source.y_test, minlength=classes) / np.maximum(counts.sum(0), 1))[
            counts.sum(0) > 0
        ],
        default=0,
    )
    for c, rows in enumerate(test):
        mix = np.bincount(source.y_test[rows - 200], minlength=classes)
        assert np.all(np.abs(mix - counts[c] * scale) < 1 + 1e-6) and not np.any(
            (mix > 0) & (counts[c] == 0)
        )


def test_a_client_too_small_for_a_share_is_tested_on_a_class_of_which_a_sample_is_left():
    source = fake(200, 90, classes=2)
    of = [200 + np.flatnonzero(source.y_test == label) for label in (0, 1)]
    rows = np.concatenate([of[0][:1], of[1][:3]])
    test = mirror(np.array([[100, 0], [2, 1]]), rows, source, np.random.default_rng(0))
    assert test[0].tolist() == [of[0][0]] and len(test[1]) == 1 and test[1][0] in of[1][:3]


def test_a_class_of_one_training_sample_bounds_the_share_of_all():
    source = fake(200, 90, classes=2)
    of = [200 + np.flatnonzero(source.y_test == label) for label in (0, 1)]
    test = mirror(
        np.array([[10, 0], [0, 1]]),
        np.concatenate([of[0][:40], of[1][:2]]),
        source,
        np.random.default_rng(0),
    )
    assert [len(rows) for rows in test] == [20, 2]


def test_true_groups_are_counted_none_where_nobody_has_one():
    source = fake()
    assert pack(parts("iid", source, clients=6), source).groups == 0
    assert [pack(parts("rotated", source, clients=6, groups=g), source).groups for g in (1, 3)] == [
        1,
        3,
    ]


def test_a_shared_test_set_is_everybodys_and_as_long_as_it_is():
    source = fake()
    shared = pack(parts("iid", source, clients=6, test="global"), source).test
    assert shared.shared and shared.longest == 300 and set(np.asarray(shared.count)) == {300}


@pytest.mark.parametrize("shared", [False, True])
def test_clients_that_never_train_have_every_other_test_sample_first(shared):
    source = fake(train=20, test=12)
    rows = 20 + np.arange(12)
    for trains in (True, False):
        train = [np.arange(10), np.arange(10, 20) if trains else np.zeros(0, int)]
        fed = pack(
            Parts(train, rows if shared else [rows[:6], rows[6:]], np.array([-1, -1])), source
        )
        start, count = np.asarray(fed.test.start)[1], np.asarray(fed.test.count)[1]
        held = np.asarray(fed.pool.y)[np.asarray(fed.test.rows)[start : start + count]]
        mine = rows if shared else rows[6:]
        asked = mine if trains else np.concatenate([mine[::2], mine[1::2]])
        np.testing.assert_array_equal(held, np.concatenate([source.y_train, source.y_test])[asked])


@pytest.mark.parametrize(("rare", "told"), [(1000, False), (600, False), (100, True), (1, True)])
def test_a_rare_class_of_the_test_set_that_takes_samples_from_all_is_told_with_numbers(rare, told):
    y_train, y_test = np.arange(10_000) % 10, np.repeat(np.arange(10), [rare, *[1000] * 9])
    source = fake(200, 90)._replace(y_train=y_train, y_test=y_test, classes=10)
    counts = np.full((50, 10), 20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dealt = sum(
            map(
                len,
                mirror(
                    counts, len(y_train) + np.arange(len(y_test)), source, np.random.default_rng(0)
                ),
            )
        )
    said = [str(warning.message) for warning in caught]
    assert len(said) == told
    if told:
        assert (
            f"{dealt} of {len(y_test)} test samples are used, because class 0 has too few"
            in said[0]
            and "global" in said[0]
        )


def test_a_rare_class_that_makes_all_clients_small_is_told_with_numbers():
    y = np.repeat(np.arange(10), [100, *[1000] * 9])
    source = fake(200, 90)._replace(
        x_train=np.zeros((len(y), 2, 2, 1), np.uint8), y_train=y, classes=10
    )
    options = Classes(clients=20, classes_per_client=10, test="global")
    with pytest.warns(
        DataWarning, match=r"1000 of 9100 training samples are used, because class 0 has too few"
    ):
        parts = classes(options, source, np.random.default_rng(0))
    assert sum(map(len, parts.train)) == 1000
