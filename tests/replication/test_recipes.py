"""The partitions of one paper each, number by number."""

from pathlib import Path

import numpy as np
import pytest

from cfljax.config import plugins
from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from cfljax.federation.common import class_counts
from cfljax.federation.pack import pack
from tests.federation.helpers import fake, parts
from tests.packaging.own import forgotten

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(autouse=True)
def recipes():
    with forgotten():
        plugins.load([str(EXPERIMENTS / "recipes.py")])
        yield


def letters(seed=0):
    return fake(30_000, 5_000, classes=62, shape=(2, 2), seed=seed)


@pytest.mark.parametrize("leak", [True, False])
def test_femnist_clients_hold_three_letters_in_equal_parts(leak):
    made = parts("femnist_fedgroup", letters(), leak=leak)
    both = [np.concatenate(pair) for pair in zip(made.train, made.test, strict=True)]
    counts = class_counts(both, made.source)
    assert made.source.classes == 26 and counts[:, 10:].sum() == 0
    for u, row in enumerate(counts):
        held = row[[u % 10, (u + 1) % 10, (u + 2) % 10]]
        assert held.sum() == row.sum() and np.all(held == held[0]) and held[0] >= 2
    assert [len(rows) for rows in made.train] == [int(0.9 * len(rows)) for rows in both]
    assert 10_000 < sum(map(len, both)) < 30_000
    assert sum(len(rows) == 6 for rows in both) < 6  # (lognormal(4, 1) + 5) / 3 is below 3 for one client in 200
    assert np.array_equal(made.group, np.arange(200) % 10)


def test_both_femnist_recipes_have_the_same_sizes_and_only_one_leaks():
    leak, clean = (parts("femnist_fedgroup", letters(), seed=4, leak=leak) for leak in (True, False))
    assert [len(rows) for rows in leak.train] == [len(rows) for rows in clean.train]
    seen = [np.isin(np.concatenate(p.test), np.concatenate(p.train)).mean() for p in (leak, clean)]
    assert seen[0] > 0.9 and seen[1] == 0


def test_femnist_clients_take_each_letter_in_turn_and_begin_again_at_its_first_image():
    of_letter, begun_again = [1000 * c + np.arange(100) for c in range(10)], 0
    for side, held in enumerate(
        PARTITIONS.entry("femnist_fedgroup").make.__globals__["_separate"](np.full(30, 20), of_letter, np.random.default_rng(0))
    ):
        for c in range(10):
            first, images = 1000 * c + 90 * side, (90, 10)[side]
            at = first
            for mine in held:
                rows = np.sort(mine[mine // 1000 == c])
                if len(rows):
                    begun_again += rows[0] != at
                    assert rows[0] == (at if at + len(rows) <= first + images else first)
                    assert np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))
                    at = rows[-1] + 1
    assert begun_again


def test_femnist_paper_is_white():
    source = letters()
    made = parts("femnist_fedgroup", source._replace(x_train=np.zeros_like(source.x_train), x_test=np.zeros_like(source.x_test)))
    assert np.all(made.source.x_train == 255) and made.source.x_train.dtype == np.uint8


def test_femnist_letters_are_the_lower_case_ones():
    source = letters()
    stamp = np.tile(source.y_train[:, None, None].astype(np.uint8), (1, 2, 2))
    stamped = source._replace(x_train=stamp, x_test=source.x_test[:0], y_test=source.y_test[:0])
    small = parts("femnist_fedgroup", stamped).source
    assert np.array_equal(255 - small.x_train[:, 0, 0], 36 + small.y_train)


def test_overlap_groups_lack_two_digits_each_and_share_six():
    source = fake(6000, 1200)
    made = parts("overlap", source)
    counts, test = class_counts(made.train, source), class_counts(made.test, source)
    lacked = [set(np.flatnonzero(counts[made.group == g].sum(0) == 0)) for g in range(4)]
    assert lacked == [{7, 9}, {5, 8}, {0, 1}, {2, 3}]
    assert all(10 - len(a | b) == 6 for i, a in enumerate(lacked) for b in lacked[:i])
    assert np.bincount(made.group).tolist() == [20] * 4
    per_group = np.array([counts[made.group == g].sum(0) for g in range(4)])
    assert set(per_group[per_group > 0]) == {150, 200}  # 600 of a digit over the four or three groups that have it
    assert counts.sum() == 6000 and np.ptp(counts[made.group == 0].sum(1)) <= 1
    assert all(test[made.group == g][:, list(lacked[g])].sum() == 0 for g in range(4))


def test_overlap_merges_emnists_62_classes_to_47_of_which_groups_lack_seven():
    source = fake(12_400, 2480, classes=62, shape=(1,))
    made = parts("overlap", source, clients=200, groups=8)
    counts = class_counts(made.train, made.source)
    assert made.source.classes == 47 and len(made.train) == 200
    for g in range(8):
        assert set(np.flatnonzero(counts[made.group == g].sum(0) == 0)) == {(7 * g + j) % 47 for j in range(7)}
    # c joins C; a and t keep classes of their own.
    for label, merged in {5: 5, 12: 12, 38: 12, 36: 36, 55: 46, 61: 35}.items():
        assert np.all(made.source.y_train[source.y_train == label] == merged)


@pytest.mark.parametrize("b", [10, 5, 2, 1])
def test_imbalanced_devices_have_b_classes_the_largest_in_their_majority_class(b):
    source = fake(60_000, 100, shape=(1,))
    made = parts("imbalance", source, clients=100, classes_per_client=b)
    counts = class_counts(made.train, source)
    assert np.all((counts > 0).sum(1) <= b) and np.all((counts > 0).sum(1) >= min(b, 2) - 1)
    assert np.median((counts > 0).sum(1)) == b
    assert np.all(counts[np.arange(100), made.group] == counts.max(1))
    assert counts.max() <= 100 and counts.sum(1).min() >= 1
    assert isinstance(made.test, np.ndarray) and len(made.test) == 100


def test_the_majority_class_is_normal_with_mean_5_and_variance_10():
    source = fake(60_000, 10, shape=(1,))
    found = np.concatenate([parts("imbalance", source, seed, clients=400, classes_per_client=1).group + 1 for seed in range(10)])
    draws = np.clip(np.rint(np.random.default_rng(0).normal(5, 10**0.5, 400_000)), 1, 10)
    seen, expected = (np.bincount(v.astype(int), minlength=11) / len(v) for v in (found, draws))
    assert np.allclose(seen, expected, atol=0.025)


def test_imbalanced_devices_have_up_to_the_most_samples_of_a_class():
    source = fake(6000, 10, shape=(1,))
    made = [parts("imbalance", source, seed, clients=100, classes_per_client=3, most=4) for seed in range(5)]
    assert set(np.unique([class_counts(m.train, source) for m in made])) == {0, 1, 2, 3, 4}


def test_imbalance_redraws_rather_than_ask_for_more_than_there_is():
    source = fake(1200, 100)
    for seed in range(20):
        made = parts("imbalance", source, seed, clients=20, most=10)
        assert len(np.unique(np.concatenate(made.train))) == sum(map(len, made.train))


WRONG = [
    ("femnist_fedgroup", {}, 'data.partition = "femnist_fedgroup"', "62"),
    ("overlap", {"clients": 3}, "data.groups = 4", "at most 3"),
    ("overlap", {"lacking": 10}, "data.lacking = 10", "at most 9"),
    ("imbalance", {"classes_per_client": 11}, "data.classes_per_client = 11", "at most 10"),
    ("imbalance", {"clients": 100}, "data.clients = 100", "fit"),
]


@pytest.mark.parametrize(("name", "options", "says", "offers"), WRONG)
def test_what_does_not_fit_is_one_line(name, options, says, offers):
    with pytest.raises(SpecError) as error:
        parts(name, fake(), **options)
    assert says in str(error.value) and offers in str(error.value) and "\n" not in str(error.value)


def test_a_partition_with_samples_of_its_own_brings_its_pool():
    source = fake(9000, 1000, classes=62, shape=(2, 2))
    made = parts("femnist_fedgroup", source, clients=20)
    federation = pack(made, source)
    assert federation.classes == 26 and len(federation.pool.y) == len(made.source.y_train) < 2000


@pytest.mark.parametrize("k", [1, 3, 10])
def test_each_client_has_a_share_of_its_own_of_each_of_its_k_classes(k):
    made = parts("shares", fake(60_000, 10_000), classes_per_client=k, clients=1000)
    both = [np.concatenate(pair) for pair in zip(made.train, made.test, strict=True)]
    counts = class_counts(both, made.source or fake(60_000, 10_000))
    for u, row in enumerate(counts):
        assert set(np.flatnonzero(row)) == {(u + j) % 10 for j in range(k)} and row[row > 0].min() >= max(1, 10 // k)
    assert len(np.unique(np.concatenate(both))) == counts.sum() > 65_000
    assert [len(rows) for rows in made.train] == [int(0.9 * n) for n in counts.sum(1)]


def test_sizes_are_more_even_with_more_classes():
    sizes = [
        [len(rows) for rows in parts("shares", fake(60_000, 10_000), classes_per_client=k, clients=1000).train] for k in (1, 10)
    ]
    assert np.std(np.log(sizes[0])) > 1.3 * np.std(np.log(sizes[1]))


def test_shares_need_the_least_number_of_samples_for_everybody():
    with pytest.raises(SpecError, match="about 20 fit"):
        parts("shares", fake(200, 10), classes_per_client=2, clients=100)


def test_a_small_letter_has_the_ink_of_the_area_that_it_covers():
    shrunk = PARTITIONS.entry("femnist_fedgroup").make.__globals__["shrunk"]
    x = np.zeros((1, 28, 28, 1), np.uint8)
    x[0, 4:24, 4:24] = 200
    half = shrunk(x, 0.5)
    assert half.shape == x.shape and half.dtype == x.dtype and np.array_equal(np.flatnonzero(half[0, :, 14, 0]), np.arange(9, 19))
    assert half.max() == 200 and np.array_equal(shrunk(x, 1.0), x)
    third = shrunk(x.astype(np.float32), 0.4)
    assert third.sum() == pytest.approx(x.sum() * (11 / 28) ** 2) and third[0, 14, 14, 0] == pytest.approx(200)


def test_small_letters_are_the_same_clients_images():
    large, small = (
        parts("femnist_fedgroup", fake(30_000, 5_000, classes=62, shape=(28, 28, 1)), letter=share) for share in (1.0, 0.4)
    )
    assert all(np.array_equal(a, b) for a, b in zip(large.train, small.train, strict=True))
    paper = small.source.x_train[:, 0, 0]
    assert np.all(paper == paper.max()) and np.any(large.source.x_train[:, 0, 0] != large.source.x_train[:, 0, 0].max())
