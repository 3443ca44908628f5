"""The partitions of one paper each, number by number."""

from pathlib import Path

import numpy as np
import pytest

from cfljax.config import plugins
from cfljax.errors import SpecError
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
    assert (
        sum(len(rows) == 6 for rows in both) < 6
    )  # (lognormal(4, 1) + 5) / 3 is below 3 for one client in 200
    assert np.array_equal(made.group, np.arange(200) % 10)


def test_both_femnist_recipes_have_the_same_sizes_and_only_one_leaks():
    leak, clean = (
        parts("femnist_fedgroup", letters(), seed=4, leak=leak) for leak in (True, False)
    )
    assert [len(rows) for rows in leak.train] == [len(rows) for rows in clean.train]
    seen = [np.isin(np.concatenate(p.test), np.concatenate(p.train)).mean() for p in (leak, clean)]
    assert seen[0] > 0.9 and seen[1] == 0


def test_overlap_groups_lack_two_digits_each_and_share_six():
    source = fake(6000, 1200)
    made = parts("overlap", source)
    counts, test = class_counts(made.train, source), class_counts(made.test, source)
    lacked = [set(np.flatnonzero(counts[made.group == g].sum(0) == 0)) for g in range(4)]
    assert lacked == [{7, 9}, {5, 8}, {0, 1}, {2, 3}]
    assert all(10 - len(a | b) == 6 for i, a in enumerate(lacked) for b in lacked[:i])
    assert np.bincount(made.group).tolist() == [20] * 4
    per_group = np.array([counts[made.group == g].sum(0) for g in range(4)])
    assert set(per_group[per_group > 0]) == {
        150,
        200,
    }  # 600 of a digit over the four or three groups that have it
    assert counts.sum() == 6000 and np.ptp(counts[made.group == 0].sum(1)) <= 1
    assert all(test[made.group == g][:, list(lacked[g])].sum() == 0 for g in range(4))


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
        assert set(np.flatnonzero(row)) == {(u + j) % 10 for j in range(k)} and row[
            row > 0
        ].min() >= max(1, 10 // k)
    assert len(np.unique(np.concatenate(both))) == counts.sum() > 65_000
    assert [len(rows) for rows in made.train] == [int(0.9 * n) for n in counts.sum(1)]
