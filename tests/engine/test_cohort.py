"""Who takes part."""

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.config import read_spec
from cfljax.contract.padding import pad
from cfljax.experiment import assemble, execution
from cfljax.federation import cohort
from tests import machines, toy

draw = jax.jit(cohort.draw, static_argnums=2)
KEY = keys.fold(keys.root(0), "round", 0)


def many(federation, participants, hyper, rounds=400):
    federation = jax.device_put(federation)

    def one(t):
        return cohort.draw(keys.fold(keys.root(0), "round", t), federation, participants, t, hyper)

    return jax.device_get(jax.jit(jax.vmap(one))(jnp.arange(rounds)))


def test_everybody_is_drawn_equally_often_and_once():
    drawn = many(toy.federation(clients=10), 3, {})
    assert all(len(set(ids)) == 3 for ids in drawn.ids.tolist()) and drawn.mask.all()
    often = np.bincount(drawn.ids.ravel(), minlength=10)
    assert often.min() > 85 and often.max() < 160


def test_pairs_are_drawn_independently_of_the_order_of_clients():
    drawn = many(toy.federation(clients=4), 2, {})
    pairs = {frozenset(ids) for ids in drawn.ids.tolist()}
    assert len(pairs) == 6


def test_padding_and_order_draw_the_same_identities():
    federation = toy.federation(clients=8)
    order = np.array([5, 2, 7, 0, 1, 6, 3, 4])
    plain = draw(KEY, federation, 3, 0, {})
    padded = draw(KEY, jax.device_put(pad(federation, clients=5)), 3, 0, {})
    shuffled = draw(KEY, jax.device_put(federation.take(order)), 3, 0, {})
    assert plain.ids.tolist() == padded.ids.tolist() == order[np.asarray(shuffled.ids)].tolist()


def test_slots_for_all_clients_draw_the_same_ones():
    federation = toy.federation(clients=8)
    padded = jax.device_put(pad(federation, clients=5))
    scores = jnp.arange(13.0)
    for number in (3, 8):
        hyper = {"participants": jnp.float32(number)}
        plain = draw(KEY, federation, number, 0, {})
        slots = draw(KEY, padded, 13, 0, hyper)
        drawn = np.flatnonzero(slots.mask).tolist()
        assert drawn == sorted(plain.ids.tolist())
        highest = cohort.draw_highest(KEY, padded, scores, slots, hyper)
        assert sorted(highest.ids[highest.mask].tolist()) == list(range(8 - number, 8))


def test_dropout_and_stragglers_have_their_rates():
    hyper = {
        "dropout": jnp.float32(0.25),
        "stragglers": jnp.float32(0.4),
        "straggler_work": jnp.float32(0.5),
    }
    drawn = many(toy.federation(clients=10), 5, hyper)
    assert 0.70 < drawn.mask.mean() < 0.80
    assert 0.35 < (drawn.work == 0.5).mean() < 0.45 and set(np.unique(drawn.work)) == {0.5, 1.0}


def test_those_who_have_not_arrived_or_hold_nothing_stay_out():
    federation = toy.federation(clients=6)
    late = toy.replace(federation, arrive=jnp.array([0, 0, 3, 0, 3, 0]))
    early, later = (draw(KEY, late, 6, t, {}) for t in (2, 3))
    assert early.mask.tolist() == [True, True, False, True, False, True] and later.mask.all()
    empty = toy.without_samples(federation, 1)
    drawn = jax.device_get(draw(KEY, empty, 5, 0, {}))
    assert 1 not in np.asarray(drawn.ids)[np.asarray(drawn.mask)] and drawn.mask.sum() == 5


def test_the_highest_of_many_scores_are_those_of_a_full_sort():
    """Random scores, with ties and with clients out of the question; and scores for which the
    threshold is wrong."""
    rng = np.random.default_rng(0)
    random = rng.integers(0, 2**31, 40_000)
    few = np.where(rng.random(40_000) < 0.004, random, -1)
    cases = [
        random, random // 2**20 * 2**20, np.where(rng.random(40_000) < 0.3, random, -1), few, np.full(40_000, 7), -np.ones(40_000),
        2**31 - 1 - np.arange(40_000)[::-1],
    ]  # fmt: skip
    quick, full = (
        jax.jit(cohort.select_highest, static_argnums=1),
        jax.jit(lambda s: jax.lax.top_k(s, 100)[1]),
    )
    for scores in cases:
        scores = jnp.asarray(scores, jnp.int32)
        np.testing.assert_array_equal(quick(scores, 100), full(scores))


def test_a_fraction_is_one_of_the_clients_that_train():
    """Twenty clients train, and twenty are there to be tested on."""
    data = {
        "name": "digits",
        "partition": "rotated",
        "groups": 2,
        "clients": 20,
        "test_clients": 20,
    }
    found = {}
    for participation in (0.5, 0.38, 1.0, 7):
        (run,) = read_spec(
            {"data": data, "method": ["fedavg"], "train": {"participation": participation}}
        ).runs()
        federation = assemble.host_federation(run)
        places = execution.choose_plan(
            run, assemble.model_of(run, federation), federation, machines.cpu()
        ).participants
        drawn = draw(KEY, jax.device_put(federation), places, 0, {})
        found[participation] = places, int(drawn.mask.sum())
    assert found == {0.5: (10, 10), 0.38: (8, 8), 1.0: (40, 20), 7: (7, 7)}
