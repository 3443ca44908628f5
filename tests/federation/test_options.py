"""Options of partitions that no other test sets."""

import numpy as np

from tests.federation.helpers import fake, parts, with_users


def sizes(made):
    return np.array([len(rows) for rows in made.train])


def test_the_spread_of_lognormal_sizes_is_sigma():
    equal, some, much = (sizes(parts("quantity", fake(6000), clients=40, sigma=sigma)) for sigma in (0.0, 0.3, 2.0))
    assert np.ptp(equal) <= 1 and np.ptp(some) > 20 and much.max() > 2 * some.max()


def test_a_smaller_spread_puts_the_majorities_into_the_middle():
    made = (parts("imbalance", fake(20_000), clients=20, classes_per_client=1, spread=spread) for spread in (0.1, 2.0))
    narrow, wide = (each.group for each in made)
    assert np.std(narrow) < 0.6 < 1.2 < np.std(wide)


def test_at_most_per_letter_images_of_a_letter_are_used():
    source = fake(2600, 520, classes=26, shape=(28, 28))
    for most in (20, 60):
        made = parts("femnist_fedgroup", source, clients=40, per_letter=most)
        used = np.unique(np.concatenate([*made.train, *made.test]))
        labels = np.concatenate([made.source.y_train, made.source.y_test])[used]
        assert np.bincount(labels).max() == most


def test_the_test_share_of_a_user_without_test_samples():
    for share in (0.0, 0.5):
        made = parts("user", with_users(fake()), test_fraction=share)
        held_out = int(40 * share)
        assert {len(rows) for rows in made.test[20:]} == {held_out}
        assert {len(rows) for rows in made.train[20:]} == {40 - held_out}
