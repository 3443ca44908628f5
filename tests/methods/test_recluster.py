"""Methods whose clients are clustered anew after some rounds (`every`)."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.round.recluster import hand_on_models
from tests import play
from tests.methods.once import federation
from tests.often import every

OPTIONS = {
    "fedgroup": {"clusters": 2, "alpha": 3, "pretrain_steps": 4},
    "ocfl": {"clients_per_cluster": 3, "max_clusters": 6},
}


@functools.cache
def played(name, every=2, late=()):
    changed = {} if every else {"max_clusters": 16} if name == "ocfl" else {}
    arrive = np.zeros(14, np.int32)
    arrive[list(late)] = 3
    there = dataclasses.replace(federation(), arrive=jnp.asarray(arrive))
    return play.rounds(
        name,
        there,
        rounds=5,
        participants=None,
        work={"batch": 5},
        **OPTIONS[name] | changed,
        every=every,
    )


def joined(state):
    labels, guess = np.asarray(state.labels), np.asarray(state.labels_if_joining)
    return np.where(labels >= 0, labels, guess)


def test_a_new_cluster_gets_the_model_that_most_of_its_members_had():
    models, fresh = np.array([[1.0], [2.0], [3.0]]), np.array([[-1.0], [-2.0], [-3.0], [-4.0]])
    before = np.array([0, 0, 1, 2, 2, 1, -1, -1, 1])
    after = np.array([0, 0, 0, 1, 1, 2, 3, -1, -1])
    assert hand_on_models(models, before, fresh, after)[:, 0].tolist() == [1.0, 3.0, 2.0, -4.0]
    tie = hand_on_models(models, np.array([2, 1]), fresh, np.array([3, 3]))[:, 0]
    assert tie.tolist() == [-1.0, -2.0, -3.0, 2.0] and fresh[3, 0] == -4.0


def test_how_often_and_before_which_rounds():
    often = METHODS.check("fedgroup", {"every": 3}, "m")
    assert [often.releases(rounds)[1] for rounds in (1, 3, 4, 6, 7)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("name", every(OPTIONS, often=("fedgroup",)))
def test_rounds_until_then_are_those_of_the_method_without_it(name):
    once, anew = played(name, None), played(name)
    for t in (0, 1):
        used = np.unique(joined(once.states[t]))
        np.testing.assert_array_equal(joined(once.states[t]), joined(anew.states[t]))
        np.testing.assert_array_equal(once.models(t)[used], anew.models(t)[used])
    assert [[int(n) for n in info.traffic] for info in once.infos[:2]] == [
        [int(n) for n in i.traffic] for i in anew.infos[:2]
    ]


@pytest.mark.parametrize("name", OPTIONS)
def test_the_set_up_is_made_again_with_new_draws_and_models_are_handed_on(name):
    anew = played(name)
    method, key = anew.method, keys.fold(keys.root(0), "regroup", 2)
    numbers = play.list_traced(METHODS.check(name, OPTIONS[name] | {"every": 2}, "m")) | {"lr": 0.1}
    numbers = {k: jnp.float32(v) for k, v in numbers.items()}
    fresh = method.setup(key, federation(), numbers | {"participants": 14})
    state = anew.states[2]
    np.testing.assert_array_equal(state.labels, fresh["labels"])
    np.testing.assert_array_equal(state.labels_if_joining, fresh["labels_if_joining"])
    # the models before are those after round 1, which the played states do not have: the round is
    # made again
    step, of_round = (
        play.prepared(name, {"batch": 5}, **OPTIONS[name], every=2).round,
        keys.fold(keys.root(0), "round", 1),
    )
    present = play.cohort.draw(of_round, federation(), 14, jnp.int32(1), numbers)
    before, _ = step(of_round, anew.states[1], federation(), present, numbers)
    had, has = joined(before), joined(state)
    for k in np.unique(has):
        most = np.bincount(had[(has == k) & (had >= 0)]).argmax()
        np.testing.assert_allclose(anew.models(2)[k], np.asarray(before.models)[most], rtol=1e-6)


def test_what_is_sent_for_it_counts_in_the_round_that_follows():
    ups = [int(info.traffic.vectors_up) for info in played("ocfl").infos]
    inside = [int(played("ocfl").diag("participants", t)) for t in range(5)]
    assert [up - own for up, own in zip(ups, inside, strict=True)] == [14, 0, 14, 0, 14]
    state, infos = played("fedgroup").states, played("fedgroup").infos
    founders = int(np.asarray(state[0].memory.founder).sum())
    assert founders == 6 and [int(info.traffic.vectors_up) - 14 for info in infos] == [
        6 + 8,
        0,
        6 + 8,
        0,
        6 + 8,
    ]


def test_who_has_arrived_by_then_takes_part():
    late = (0, 5)
    before, after = played("ocfl", 4, late).states[3:5]
    assert (np.asarray(before.labels)[list(late)] < 0).all() and (
        np.asarray(after.labels) >= 0
    ).all()
    ups = [int(i.traffic.vectors_up) for i in played("ocfl", 4, late).infos]
    inside = [int(played("ocfl", 4, late).diag("participants", t)) for t in range(5)]
    assert [up - own for up, own in zip(ups, inside, strict=True)] == [12, 0, 0, 2, 14]


def test_more_clusters_than_places_are_merged():
    few = play.rounds(
        "ocfl", federation(), rounds=1, work={"batch": 5}, every=3, max_clusters=2, noise="isolate"
    )
    many = play.rounds("ocfl", federation(), rounds=1, work={"batch": 5}, noise="isolate")
    assert few.models().shape[0] == 2 and few.labels().max() == 1 and many.labels().max() > 1


def test_each_clustering_publishes_a_sum():
    check = lambda name, **options: METHODS.check(name, options, "m")  # noqa: E731
    assert check("fedgroup", every=4).releases(9) == (9, 3) and check("fedgroup").releases(9) == (
        9,
        1,
    )
    assert check("ocfl", every=4).releases(9) == (0, 9)


def test_places_without_a_second_clustering_are_refused():
    with pytest.raises(SpecError, match="needs `every`"):
        METHODS.entry("ocfl").options(max_clusters=4).check("method")


def test_snapshots_are_of_the_last_clustering():
    out = play.rounds(
        "fedgroup",
        federation(),
        3,
        None,
        work={"batch": 5},
        **OPTIONS["fedgroup"],
        every=2,
        snapshots=True,
    )
    first, same, last = (np.asarray(out.method.extras(out.states[t])["edc"]) for t in (0, 1, 2))
    assert (
        np.array_equal(first, same) and first.shape == last.shape and not np.allclose(first, last)
    )
