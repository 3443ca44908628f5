"""FedProx's MNIST and OCFL's shards, number by number."""

import numpy as np
import pytest

from cfljax.federation.common import class_counts
from cfljax.federation.fedprox import FedProx, _fedprox_sizes
from tests.federation.helpers import fake, parts, real

MNIST_CLASSES = np.array([6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])


def seventy_thousand():
    """Labels as often as in MNIST, with one byte per image."""
    y = (
        np.random.default_rng(0)
        .permutation(np.repeat(np.arange(10), MNIST_CLASSES))
        .astype(np.int32)
    )
    source = fake(1, 1, shape=(1,))
    x = np.zeros((70_000, 1), np.uint8)
    return source._replace(
        x_train=x[:60_000], y_train=y[:60_000], x_test=x[60_000:], y_test=y[60_000:]
    )


def literal_fedprox(classes, rng):
    """The published program's loops, on counts alone."""
    held = np.zeros((1000, 2), int)
    index = np.zeros(10, int)
    for user in range(1000):
        for j in range(2):
            held[user, j] += 5
            index[(user + j) % 10] += 5
    props = rng.lognormal(0, 2.0, (10, 100, 2))
    props = np.array([[[n - 1000]] for n in classes]) * props / np.sum(props, (1, 2), keepdims=True)
    for user in range(1000):
        for j in range(2):
            digit = (user + j) % 10
            number = int(props[digit, user // 10, j])
            if index[digit] + number < classes[digit]:
                held[user, j] += number
                index[digit] += number
    return held


@pytest.mark.parametrize("seed", [0, 1])
def test_fedprox_sizes_are_those_of_the_published_program(seed):
    literal = literal_fedprox(MNIST_CLASSES, np.random.RandomState(seed))
    assert np.array_equal(
        5 + _fedprox_sizes(FedProx(), MNIST_CLASSES, np.random.RandomState(seed)), literal
    )


def test_fedprox_skips_the_share_that_would_use_up_a_class():
    equal = _fedprox_sizes(
        FedProx(sigma=0.0), np.full(10, 1200), np.random.default_rng(0)
    )  # shares of one, 200 per class
    digit = (np.arange(1000)[:, None] + np.arange(2)) % 10
    assert np.bincount(digit.ravel(), weights=equal.ravel()).tolist() == [199] * 10


def test_fedprox_has_1000_clients_of_two_digits_and_about_69035_samples():
    source = seventy_thousand()
    made = parts("fedprox", source)
    both = [np.concatenate(pair) for pair in zip(made.train, made.test, strict=True)]
    counts, sizes = class_counts(both, source), np.array([len(rows) for rows in both])
    user = np.arange(1000)
    assert len(both) == 1000 and abs(sizes.sum() - 69_035) < 90
    assert np.all((counts > 0).sum(1) == 2)
    assert min(counts[user, user % 10].min(), counts[user, (user + 1) % 10].min()) >= 5
    assert [len(rows) for rows in made.train] == [int(0.9 * n) for n in sizes]
    assert np.array_equal(made.group, user % 10)
    assert len(np.unique(np.concatenate(both))) == sizes.sum()
    assert sizes.max() > 800 and np.median(sizes) < 60


def test_fedprox_draws_again_until_the_total_is_the_published_one():
    made = parts("fedprox", seventy_thousand(), total=69_035)
    assert sum(map(len, made.train)) + sum(map(len, made.test)) == 69_035


def test_fedprox_on_mnist():
    made = parts("fedprox", real("mnist"), seed=5)
    assert len(made.train) == 1000
    assert sum(map(len, made.train)) + sum(map(len, made.test)) == 69_035


def test_ocfls_shards_split_the_training_images_eighty_to_twenty():
    source = fake(6000, 100)
    for shards, few in ((2, 4), (1, 2)):
        made = parts("shards", source, clients=100, shards=shards, holdout=0.2)
        assert [sum(map(len, p)) for p in (made.train, made.test)] == [4800, 1200]
        assert np.concatenate([*made.train, *made.test]).max() < 6000
        counts = class_counts(made.train, source)
        assert np.all((counts > 0).sum(1) <= few) and np.array_equal(made.group, counts.argmax(1))
        assert set(counts.sum(1)) == {48}
