"""Clients and jobs in any order: taken and put back they are the same, and a free place does no
work."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfljax.types import Grams, Jobs
from tests import toy

CLIENTS = 8
EXAMPLES = settings(max_examples=25, deadline=None)
orders = st.permutations(range(CLIENTS)).map(np.array)


@functools.cache
def federation():
    """With all that a client can have: a view of its own, an owner and a matrix of products. Numpy
    arrays: nothing to compile."""
    made = jax.tree.map(
        np.asarray, toy.federation("label_permutation", clients=CLIENTS, groups=2, copies=False)
    )
    assert made.view is not None
    grams = Grams(np.arange(CLIENTS, dtype=np.int32) * 3, (np.zeros((24, 3), np.float32),))
    group, arrive = np.arange(CLIENTS, dtype=np.int32) % 2, np.arange(CLIENTS, dtype=np.int32) * 2
    train = toy.replace(
        made.train, grams=grams, count=made.train.count - np.arange(CLIENTS, dtype=np.int32)
    )
    test = toy.replace(made.test, count=made.test.count - group)
    return toy.replace(
        made,
        train=train,
        test=test,
        group=group,
        arrive=arrive,
        owner=np.arange(CLIENTS, dtype=np.int32) // 3,
    )


def jobs():
    each, models = jnp.arange(CLIENTS), jnp.arange(6.0).reshape(3, 2)
    return Jobs(
        each + 10, each != 2, each / CLIENTS, models, each % 3, models + 1, each % 2, models + 2
    )


def same(a, b):
    left, right = jax.tree.flatten(a), jax.tree.flatten(b)
    return left[1] == right[1] and all(
        np.array_equal(x, y) for x, y in zip(left[0], right[0], strict=True)
    )


def rows_of(split, client):
    return split.rows[split.start[client] : split.start[client] + split.count[client]].tolist()


@EXAMPLES
@given(orders)
def test_clients_taken_in_an_order_and_back_are_the_same(order):
    whole = federation()
    turned = whole.take(order)
    assert same(turned.take(np.argsort(order)), whole) and same(
        whole.train.take(order).take(np.argsort(order)), whole.train
    )
    for new, old in enumerate(order):
        assert turned.uid[new] == whole.uid[old] and turned.group[new] == whole.group[old]
        assert turned.arrive[new] == whole.arrive[old] and turned.owner[new] == whole.owner[old]
        assert (
            turned.view.of[new] == whole.view.of[old]
            and turned.train.grams.start[new] == whole.train.grams.start[old]
        )
        assert rows_of(turned.train, new) == rows_of(whole.train, old) and rows_of(
            turned.test, new
        ) == rows_of(whole.test, old)


@EXAMPLES
@given(orders, st.integers(1, CLIENTS))
def test_some_clients_are_the_first_of_an_order_of_all(order, number):
    some, all_of_them = federation().take(order[:number]), federation().take(order)
    assert same(some, all_of_them.take(np.arange(number))) and some.clients == number


@EXAMPLES
@given(orders, st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS))
def test_jobs_taken_in_an_order_and_back_are_the_same_and_free_places_are_masked(order, free):
    assert same(jobs().take(order).take(np.argsort(order)), jobs())
    some = jobs().take(jnp.where(jnp.array(free), -1, jnp.array(order)))
    for place, (job, empty) in enumerate(zip(order, free, strict=True)):
        assert bool(some.mask[place]) == (not empty and job != 2)
        if not empty:
            assert some.client[place] == job + 10 and some.work[place] == job / CLIENTS
            assert some.which[place] == job % 3 and some.anchor_of[place] == job % 2
    assert same(
        (some.start, some.anchor, some.velocity), (jobs().start, jobs().anchor, jobs().velocity)
    )
