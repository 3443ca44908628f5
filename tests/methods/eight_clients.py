"""Eight clients of two groups, and the comparison with the rounds of a plain loop."""

import numpy as np

from tests import play, toy


def federation(**options):
    return toy.federation("label_permutation", clients=8, groups=2, copies=False, **options)


def close(states, method, wanted):
    models, labels = play.models_of(method, states)
    for (m, y), found, where in zip(wanted, models[1:], labels[1:], strict=True):
        np.testing.assert_array_equal(where, y)
        assert np.abs(found - m).max() < 1e-5 * max(1, np.abs(m).max())
