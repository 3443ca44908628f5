"""What the weights of a method's next mixtures are computed from."""

import numpy as np

from tests import toy


def own_and_first(output):
    return output.models.astype(np.float64), toy.start(0)


def assert_all_have_trained(output):
    """The mean of those that have trained is then in no mixture."""
    own, first = own_and_first(output)
    assert (own != first).any(axis=1).all()
