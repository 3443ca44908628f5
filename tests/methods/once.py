"""Fourteen clients that are clustered once, before the first round, and the comparison with a plain
loop."""

import functools

import numpy as np

from tests import toy
from tests.reference import once, plain

WORK = {"epochs": 2, "batch": 5}


@functools.cache
def federation():
    return toy.federation("shards", seed=2, clients=14, shards=1, test="own")


@functools.cache
def weights(epochs, lr=0.1):
    clients = plain.Clients(federation())
    return once.trained(plain.Net(6, 4), clients, toy.start(), 0, lr, 5, epochs)


def agree(states, method, history, labels):
    """The models of clusters in use, and everybody's label."""
    for state, wanted in zip(states, history, strict=True):
        models, found = (np.asarray(a) for a in method.models(state))
        np.testing.assert_array_equal(found, labels)
        for k, right in wanted.items():
            np.testing.assert_allclose(models[k], right, atol=1e-5 * np.abs(right).max())
