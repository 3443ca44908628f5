"""Eight clients that the host clusters before or between rounds, and the comparison with the plain
program of such rounds."""

import functools

import jax.numpy as jnp
import numpy as np

from tests import toy
from tests.reference import host_clusters as reference
from tests.reference import plain

SEED, ROUNDS, CLIENTS = 2, 4, 8
NET = plain.Net(6, 4)
ALL = np.arange(CLIENTS)


@functools.cache
def federation():
    """Two groups of clients that call the classes by other names."""
    return toy.federation("label_permutation", clients=CLIENTS, groups=2, seed=1)


@functools.cache
def arriving():
    return toy.replace(federation(), arrive=jnp.array([0] * (CLIENTS - 1) + [3], jnp.int32))


def same(labels, others):
    return np.array_equal(reference.renamed(labels), reference.renamed(others))


def plain_rounds(between, labels=None, ids=None, rounds=ROUNDS):
    clients = plain.Clients(federation())
    labels = np.zeros(CLIENTS, int) if labels is None else labels
    key = functools.partial(plain.round_key, SEED)
    return reference.rounds(
        NET, clients, toy.start(SEED), labels, key, ids or (lambda t: ALL), between, rounds
    )


def check(out, models, labels):
    assert np.array_equal(out.labels(), labels)
    for k, w in models.items():
        assert np.abs(out.models()[k] - w).max() < 1e-5
