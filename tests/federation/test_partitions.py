"""Facts that hold for every partition."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.federation.common import class_counts
from tests.federation.helpers import fake, parts, with_users

CASES = [
    ("iid", {"clients": 20}), ("iid", {"clients": 7, "samples_per_client": 50}), ("iid", {"clients": 20, "holdout": 0.2}),
    ("iid", {"clients": 7, "samples_per_client": 50, "holdout": 0.5}), ("quantity", {"clients": 30}),
    ("quantity", {"clients": 30, "law": "dirichlet", "samples_per_client": 20, "min_samples": 5}), ("shards", {"clients": 20}),
    ("shards", {"clients": 20, "shards": 1, "holdout": 0.2, "samples_per_client": 30}),
    ("shards", {"clients": 13, "shards": 3}), ("classes", {"clients": 30, "classes_per_client": 1}),
    ("classes", {"clients": 30, "classes_per_client": 3, "samples_per_client": 30}),
    ("classes", {"clients": 30, "classes_per_client": 5, "balance": "power"}), ("classes", {"clients": 30, "groups": 4}),
    ("dirichlet", {"clients": 10}), ("dirichlet", {"clients": 10, "alpha": 1.0, "samples_per_client": 80}),
    ("dirichlet", {"clients": 10, "balance": "capped", "alpha": 0.2}), ("iid", {"clients": 20, "holdout": 0.25, "merged": True}),
    ("dirichlet", {"clients": 20, "balance": "capped", "classes_first": 3, "holdout": 0.25, "merged": True}),
    ("dirichlet", {"clients": 4, "balance": "equal", "sizes": [200, 700, 90, 30]}),
    ("quantity", {"clients": 3, "sizes": [300, 20, 900]}), ("quantity", {"clients": 30, "holdout": 0.3}),
    ("classes", {"clients": 30, "holdout": 0.25, "merged": True}), ("shards", {"clients": 20, "holdout": 0.25, "merged": True}),
    ("pachinko", {"clients": 20}), ("pachinko", {"clients": 20, "samples_per_client": 50, "alpha": 1.0, "beta": 0.5}),
    ("rotated", {"clients": 20}), ("rotated", {"clients": 20, "samples_per_client": 60, "test_clients": 4, "copies": True}),
    ("rotated", {"clients": 21, "groups": 2, "copies": False}), ("label_swap", {"clients": 20}),
    ("label_permutation", {"clients": 20, "groups": 3, "copies": False}), ("feature_shift", {"clients": 20}),
    ("corrupted", {"clients": 20}),
    ("corrupted", {"clients": 20, "groups": 2, "kinds": ["none", "jpeg"], "copies": False, "test": "global"}),
    ("fedprox", {"clients": 50}), ("domains", {}), ("domains", {"clients": 11, "samples_per_client": 40}), ("user", {}),
    ("user", {"clients": 10, "test_only": "keep", "samples_per_client": 20}),
]  # fmt: skip
NAMES = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
each_case = pytest.mark.parametrize(("name", "options"), CASES, ids=NAMES)


def source_for(name):
    source = with_users(fake(2400, 600, seed=3))
    return (
        source._replace(coarse=np.arange(10, dtype=np.int32) % 3) if name == "pachinko" else source
    )


def rows_total(source):
    return len(source.y_train) + len(source.y_test)


def source_mix(source):
    return np.bincount(source.y_train, minlength=source.classes) / len(source.y_train)


def rows_tested(made):
    return [made.test] if isinstance(made.test, np.ndarray) else made.test


def views(made):
    return np.zeros(len(made.train), np.int32) if made.view is None else made.view


def test_every_partition_is_tried_here():
    own = {name for name in PARTITIONS if PARTITIONS.origin(name) is None}  # other tests add theirs
    # What a file says is no draw: tests/federation/test_from_file.py
    assert {name for name, _ in CASES} == own - {"file"}


@each_case
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name, options):
    source = source_for(name)
    first, again, other = (parts(name, source, seed, **options) for seed in (1, 1, 2))
    flat = [np.concatenate([*p.train, *rows_tested(p)]) for p in (first, again, other)]
    assert np.array_equal(flat[0], flat[1])
    assert not np.array_equal(flat[0], flat[2])
    assert np.array_equal(first.group, again.group)


@each_case
def test_rows_are_in_range_and_every_client_is_described(name, options):
    source = source_for(name)
    made = parts(name, source, **options)
    source = made.source or source
    rows = np.concatenate([*made.train, *rows_tested(made)])
    assert rows.min() >= 0 and rows.max() < rows_total(source)
    assert (
        made.group.shape == (len(made.train),)
        and made.group.dtype == np.int32
        and made.group.min() >= -1
    )
    assert not isinstance(made.test, list) or len(made.test) == len(made.train)
    if "clients" in options:
        assert sum(len(rows) > 0 for rows in made.train) == options["clients"]


@each_case
def test_no_sample_is_held_twice_in_a_view_and_none_both_trains_and_tests(name, options):
    source = source_for(name)
    made = parts(name, source, **options)
    view = views(made)
    assert len(np.concatenate(made.train)) > 0
    for v in np.unique(view):
        held = np.concatenate([rows for rows, of in zip(made.train, view, strict=True) if of == v])
        assert len(np.unique(held)) == len(held)
    for rows in made.train:
        assert len(np.unique(rows)) == len(rows)
    both = np.intersect1d(np.concatenate(made.train), np.concatenate(rows_tested(made)))
    assert not len(both)


@each_case
def test_the_own_test_part_has_the_class_mix_of_the_training_part(name, options):
    source = source_for(name)
    options = {**options, "test": "own"}
    made = parts(name, source, **options)
    source = made.source or source
    train, test = class_counts(made.train, source), class_counts(made.test, source)
    both = (train.sum(1) > 0) & (test.sum(1) > 0)
    assert both.sum() > 0.8 * np.sum(train.sum(1) > 0)
    shares, shares_test = (c[both] / c[both].sum(1, keepdims=True) for c in (train, test))
    noise = (
        source.classes * (1 / train[both].sum(1) + 1 / test[both].sum(1))
    ) ** 0.5  # of two draws from one distribution
    apart = np.abs(shares - shares_test).sum(1)
    assert apart.mean() < 0.1 + noise.mean()
    overall = source_mix(source)
    if (
        np.abs(shares - overall).sum(1).mean() > 0.6
    ):  # clients that differ: a test part cut from all classes would show
        assert apart.mean() < 0.6 * np.abs(shares - overall).sum(1).mean()
    # The others are draws, or shards, whose edges need not agree
    if name in ("classes", "dirichlet") and "holdout" not in options:
        assert not np.any((test[both] > 0) & (train[both] == 0))


@each_case
def test_a_global_test_set_is_one_array(name, options):
    made = parts(name, source_for(name), **{**options, "test": "global"})
    if name == "corrupted":  # whose groups have copies of it
        for group in np.unique(made.group):
            tests = [
                rows for rows, mine in zip(made.test, made.group, strict=True) if mine == group
            ]
            assert (
                all(np.array_equal(rows, tests[0]) for rows in tests)
                and len(np.unique(tests[0])) == len(tests[0]) == 600
            )
        return
    assert isinstance(made.test, np.ndarray)
    assert len(np.unique(made.test)) == len(made.test) > 0


GROUPED = ("rotated", "label_swap", "label_permutation")


@pytest.mark.parametrize("name", GROUPED)
def test_in_ifcas_layout_every_image_is_in_every_view_once(name):
    source = fake()
    made = parts(name, source, clients=20, groups=4)
    for g in range(4):
        held = np.concatenate(
            [rows for rows, of in zip(made.train, made.group, strict=True) if of == g]
        )
        assert np.array_equal(np.sort(held), np.arange(len(source.y_train)))
    assert np.array_equal(made.view, made.group)
    assert np.bincount(made.group).tolist() == [5, 5, 5, 5]


def test_without_copies_every_image_is_in_one_view():
    source = fake()
    made = parts("rotated", source, clients=20, copies=False)
    assert np.array_equal(np.sort(np.concatenate(made.train)), np.arange(len(source.y_train)))


def test_test_clients_never_train_and_have_as_many_samples_as_asked():
    made = parts("rotated", fake(), clients=8, test_clients=4, samples_per_client=100)
    assert [len(rows) for rows in made.train] == [100] * 8 + [0] * 4
    assert [len(rows) for rows in made.test[8:]] == [100] * 4
    assert made.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3]


def test_label_swap_swaps_that_many_pairs_and_every_group_others():
    made = parts("label_swap", fake(), clients=40, groups=10, pairs=2)
    assert np.array_equal(made.labels[0], np.arange(10))
    assert len(np.unique(made.labels, axis=0)) == 10
    for labels in made.labels[1:]:
        assert np.sum(labels != np.arange(10)) == 4
        assert np.array_equal(labels[labels], np.arange(10))


def test_label_permutations_are_permutations_and_differ():
    made = parts("label_permutation", fake(classes=3), clients=6, groups=6)
    assert np.array_equal(np.sort(made.labels, axis=1), np.tile(np.arange(3), (6, 1)))
    assert len(np.unique(made.labels, axis=0)) == 6


def test_inversion_turns_white_into_black():
    made = parts("feature_shift", fake(), clients=4)
    assert np.allclose(np.outer([0.0, 1.0], made.gain) + made.offset, [[0, 1], [1, 0]])


def test_gains_and_offsets_run_from_group_to_group():
    assert np.allclose(
        parts("feature_shift", fake(), clients=6, groups=3, kind="gain", strength=0.8).gain,
        [1, 0.6, 0.2],
    )
    assert np.allclose(
        parts("feature_shift", fake(), clients=6, groups=3, kind="offset", strength=0.8).offset,
        [0, 0.4, 0.8],
    )


def test_equal_classes_are_as_many_and_as_large_as_asked():
    source = fake(2400)
    counts = class_counts(
        parts("classes", source, clients=20, classes_per_client=3, samples_per_client=100).train,
        source,
    )
    assert np.all(counts.sum(1) == 100)
    assert np.all((counts > 0).sum(1) == 3)
    assert set(counts[counts > 0]) == {33, 34}


@pytest.mark.parametrize("k", [1, 3, 5, 10])
@pytest.mark.parametrize("balance", ["equal", "power"])
def test_classes_are_held_in_equal_parts_and_nearly_all_samples_are_used(k, balance):
    source = fake(60_000, 100, shape=(1,), balanced=False)
    counts = class_counts(
        parts("classes", source, clients=1000, classes_per_client=k, balance=balance).train, source
    )
    held = np.where(counts > 0, counts, -1)
    assert np.all((held > 0).sum(1) == k)
    assert np.all((held == held.max(1, keepdims=True)) | (held == -1))
    assert counts.sum() > 0.8 * len(source.y_train)
    sizes = counts.sum(1)
    assert (sizes.max() > 20 * np.median(sizes)) == (balance == "power")


def test_groups_of_classes_hold_the_same_classes():
    source = fake(2400)
    made = parts("classes", source, clients=20, groups=4)
    held = class_counts(made.train, source) > 0
    assert all(len(np.unique(held[made.group == g], axis=0)) == 1 for g in range(4))


def test_a_small_alpha_makes_few_classes_and_a_large_one_all():
    source = fake(6000)
    made = [parts("dirichlet", source, clients=10, alpha=a, min_samples=1) for a in (0.05, 100.0)]
    few, all_of_them = ((class_counts(p.train, source) > 30).sum() for p in made)
    assert few < 40 and all_of_them == 100


def test_dirichlet_uses_every_sample_and_keeps_the_minimum():
    source = fake(6000)
    made = parts("dirichlet", source, clients=20, min_samples=25)
    assert np.array_equal(np.sort(np.concatenate(made.train)), np.arange(6000))
    assert min(len(rows) for rows in made.train) >= 25


def test_quantity_sizes_follow_the_mean_and_the_minimum():
    made = parts("quantity", fake(6000), clients=40, samples_per_client=100, min_samples=7)
    sizes = np.array([len(rows) for rows in made.train])
    assert sizes.sum() == 4000 and sizes.min() >= 7 and sizes.max() > 2 * sizes.min()


def test_users_hold_their_own_samples():
    source = with_users(fake())
    made = parts("user", source, test_only="keep")
    assert len(made.train) == 33
    for u, rows in enumerate(made.train):
        assert np.all(source.user_train[rows] == u)
    for u, rows in enumerate(made.test):
        if 20 <= u < 30:  # no test samples: a fifth of its forty training samples
            assert (
                len(rows) == 8 and len(made.train[u]) == 32 and np.all(source.user_train[rows] == u)
            )
        else:
            assert np.all(source.user_test[rows - len(source.y_train)] == u) and len(rows)
    assert [len(rows) for rows in made.train[30:]] == [0, 0, 0]
    assert np.array_equal(made.group, source.population)


def test_test_only_users_are_left_out_unless_kept():
    assert len(parts("user", with_users(fake())).train) == 30


@pytest.mark.parametrize("k", [1, 4])
def test_sizes_of_a_power_law_that_fit_are_those_drawn(k):
    source = fake(60_000, 100, shape=(1,), balanced=False)
    options = {
        "clients": 100,
        "classes_per_client": k,
        "balance": "power",
        "samples_per_client": 40,
    }
    held = class_counts(parts("classes", source, **options).train, source)
    assert 0.85 * 100 * 40 <= held.sum() <= 100 * 40


def test_large_clients_give_way_where_a_scarce_class_is_needed_by_all():
    """Fifty clients need one sample each of a class that has sixty, so that the large ones shrink
    by more than its ratio."""
    source = fake(3000, 300)
    rare = np.flatnonzero(source.y_train == 0)
    source = source._replace(
        y_train=np.where(np.isin(np.arange(3000), rare[60:]), 1, source.y_train).astype(np.int32)
    )
    made = parts(
        "classes", source, clients=50, classes_per_client=10, balance="power", min_samples=10
    )
    held = class_counts(made.train, source)
    assert held.min() == 1 and held[:, 0].sum() <= 60 and held.max() > 1
    assert np.all(held == held[:, :1])


def test_an_iid_baseline_holds_out_as_many_samples_as_shards_do():
    source, options = fake(1200, 300), {"clients": 20, "holdout": 0.2}
    sizes = []
    for name, more in (("iid", {}), ("shards", {"shards": 1})):
        made = parts(name, source, **options, **more)
        train, test = (np.concatenate(rows) for rows in (made.train, made.test))
        sizes.append((len(train), len(test)))
        assert len(set(train) | set(test)) == 1200 == max(*train, *test) + 1
    assert sizes == [(960, 240)] * 2
    with pytest.raises(SpecError, match="data.samples_per_client = 50: 20 clients share the 960"):
        parts("iid", source, samples_per_client=50, **options)
