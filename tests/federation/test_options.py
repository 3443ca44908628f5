"""Options of partitions that no other test sets."""

import numpy as np

from tests.federation.helpers import fake, parts, with_users


def sizes(made):
    return np.array([len(rows) for rows in made.train])


def test_the_spread_of_lognormal_sizes_is_sigma():
    equal, some, much = (sizes(parts("quantity", fake(6000), clients=40, sigma=sigma)) for sigma in (0.0, 0.3, 2.0))
    assert np.ptp(equal) <= 1 and np.ptp(some) > 20 and much.max() > 2 * some.max()


def test_the_test_share_of_a_user_without_test_samples():
    for share in (0.0, 0.5):
        made = parts("user", with_users(fake()), test_fraction=share)
        held_out = int(40 * share)
        assert {len(rows) for rows in made.test[20:]} == {held_out}
        assert {len(rows) for rows in made.train[20:]} == {40 - held_out}
