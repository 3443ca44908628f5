"""FedDrift against a plain numpy program, on clients whose data change, its bill and its
identities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.methods import METHODS
from cfljax.methods.feddrift import DriftMemory, LossComparison, begin_models, merge_map
from cfljax.registry.options import list_traced
from cfljax.round.ask import Ask
from cfljax.round.state import State
from tests import play, toy
from tests.methods.merging import NET, SEED, WORK, federation, present
from tests.often import rarely
from tests.reference import feddrift, plain


@functools.cache
def turned(t):
    """The clients 2, 3 and 7 have the other group's labels from round 6 on, client 2 for six
    rounds."""
    of = np.array(federation().view.of)
    changed = [c for c in (2, 3, 7) if t >= 6 and not (c == 2 and t >= 12)]
    of[changed] = 1 - of[changed]
    return toy.replace(federation(), view=federation().view._replace(of=jnp.asarray(of)))


def drifting(participants, rounds=15, at=turned, **options):
    """Rounds of FedDrift in which the clients' data change."""
    config, _, method, init, step = play.prepared("feddrift", WORK, **options)
    hyper = {
        k: jnp.float32(v)
        for k, v in ({"lr": 0.1} | list_traced(METHODS.check("feddrift", options, "m"))).items()
    }
    key = keys.root(SEED)
    states, infos = [init(key, at(0), hyper, {})], []
    for t in range(rounds):
        each = keys.fold(key, "round", t)
        state, info = step(
            each, states[-1], at(t), play.drawn(each, at(t), participants, t, hyper), hyper
        )
        states, infos = [*states, state], [*infos, info]
    return play.Played(states, infos, method)


def counts(out, name):
    return [int(out.diag(name, t)) for t in range(len(out.infos))]


DRIFTS = {"max_clusters": 12, "delta": 0.1, "every": 3, "start": "one"}


@pytest.mark.parametrize(("participants", "options"), [
    rarely(10, {}), (6, {"start": "each", "every": 2, "max_clusters": 6}),
    rarely(10, {"start": "each", "max_clusters": 4, "delta": 0.03}),
])  # fmt: skip
def test_feddrift_follows_the_plain_program(participants, options):
    options = DRIFTS | options
    out = drifting(participants, **options)
    numbers = {
        "seed": SEED,
        "rounds": 15,
        "participants": participants,
        "lr": 0.1,
        "batch": 5,
        "epochs": 2,
    }
    history = feddrift.feddrift(
        NET, lambda t: plain.Clients(turned(t)), toy.start(SEED), **numbers, **options
    )
    for t, (models, labels) in enumerate(history, 1):
        there = [k for k, m in enumerate(models) if m is not None]
        assert out.labels(t).tolist() == labels.tolist(), t
        assert np.flatnonzero(out.states[t].active).tolist() == there
        assert max(np.abs(out.models(t)[k] - models[k]).max() for k in there) < 1e-5
        assert counts(out, "models")[t - 1] == len(there)
    assert sum(counts(out, "isolated")) >= 3


def test_feddrift_isolates_those_that_drift_and_merges_them_with_their_like():
    out = drifting(10, **DRIFTS)
    now = np.asarray(federation().group).copy()
    now[[3, 7]] = 1 - now[[3, 7]]
    assert [counts(out, "isolated")[t] for t in (0, 3, 6, 9, 12)] == [0, 0, 0, 4, 0] and sum(
        counts(out, "isolated")
    ) == 4
    assert (
        len(np.unique(out.labels(10))) == 5
        and sum(counts(out, "merged")) == counts(out, "merged")[12] == 2
    )
    assert (
        len(np.unique(out.labels())) == 2
        and len({(int(k), int(g)) for k, g in zip(out.labels(), now, strict=True)}) == 2
    )


def test_feddrift_counts_the_models_that_are_compared_and_the_losses():
    sent = [tuple(map(int, info.traffic)) for info in drifting(10, **DRIFTS).infos]
    assert sent[:9] == [(10, 10, 0, 0)] * 9
    assert sent[9] == (14, 10, 0, 0)  # one model to compare, and four new ones
    assert sent[10:12] == [(10, 10, 0, 0)] * 2
    assert sent[12] == (
        5 * 10 + 5,
        10,
        0,
        5 * 10,
    )  # five models to compare, and a merged one for those who took it
    assert sent[13:] == [(10, 10, 0, 0)] * 2


def test_feddrift_where_nothing_drifts_is_fedavg():
    out, average = (
        drifting(10, 7, lambda _: federation(), **DRIFTS),
        play.rounds("fedavg", federation(), 7, None, SEED, work=WORK),
    )
    assert np.allclose(out.models()[0], average.models()[0], atol=1e-6) and not out.labels().any()
    assert [tuple(i.traffic) for i in out.infos] == [tuple(i.traffic) for i in average.infos]


def test_feddrift_finds_the_model_of_data_that_come_back():
    one = toy.replace(federation(), view=federation().view._replace(of=jnp.zeros(10, jnp.int32)))
    other = toy.replace(one, view=one.view._replace(of=jnp.ones(10, jnp.int32)))
    out = drifting(10, 9, lambda t: other if 3 <= t < 6 else one, **DRIFTS)
    assert [set(out.labels(t).tolist()) for t in (3, 6, 9)] == [{0}, set(range(1, 11)), {0}]
    assert counts(out, "models") == [1] * 3 + [11] * 6
    assert np.array_equal(out.models(4)[0], out.models(6)[0]) and not np.allclose(
        out.models(9)[0], out.models(6)[0]
    )


def test_feddrift_s_distance_is_of_mean_losses_by_samples_without_those_that_drift_or_are_broken():
    losses = np.array(
        [[1.0, 2.0, 1.95, 9.0, np.nan], [2.0, 2.05, 1.9, 9.0, 1.0], [np.nan] * 5], np.float32
    )
    drifts = np.array([False, False, False, True, False])
    there, best = np.array([True, True, False]), np.array([0, 0, 1, 1, 1], np.int32)
    look = LossComparison(np.ones(5, bool), there, losses, best, np.min(losses, axis=0), drifts)
    count = np.array(federation().train.count)
    count[:5] = 1, 9, 5, 5, 5
    made = toy.replace(federation(), train=toy.replace(federation().train, count=count))
    joined = jax.jit(
        lambda delta: merge_map(Ask(None, None, made, present(0, 1, 2, 3, 4), {}), look, delta)
    )
    for delta, root in (
        (0.14, [0, 1, 2]),
        (0.15, [0, 0, 2]),
    ):  # L_00 = 1.9, L_01 = 1.95, L_10 = 2.045, L_11 = 1.9
        assert joined(np.float32(delta)).tolist() == root


def test_feddrift_replaces_the_model_that_is_unused_for_the_longest_time():
    nothing, labels, used = (
        np.zeros(4, np.float32),
        np.zeros(10, np.int32),
        np.array([5, 3, 1, 2], np.int32),
    )
    everybody, best = np.ones(4, bool), np.zeros(4, np.int32)
    known = DriftMemory(np.array([-7], np.float32), best, used, labels, np.zeros(10, np.float32))
    state = State(np.arange(4, dtype=np.float32)[:, None], labels, active=everybody, memory=known)
    look = LossComparison(
        everybody, everybody, np.zeros((4, 4), np.float32), best, nothing, everybody
    )
    ask, state, look = (
        Ask(None, None, federation(), present(4, 2, 1, 3), {}),
        *jax.tree.map(jnp.asarray, (state, look)),
    )
    after, which, isolated = begin_models(ask, state, look, jnp.int32(6))
    assert which.tolist() == [0, 3, 2, 1] and isolated.tolist() == [False, True, True, True]
    assert after.models[:, 0].tolist() == [0, -7, -7, -7] and after.memory.born.tolist() == [
        0,
        6,
        6,
        6,
    ]
    assert after.labels[:5].tolist() == [0, 2, 3, 1, 0] and after.memory.used.tolist() == [
        6,
        6,
        6,
        6,
    ]


def test_what_they_hold_and_make_public():
    config = METHODS.check("feddrift", {"max_clusters": 5}, "m")
    assert config.releases(7) == (7, 0) and config.models_kept == 5
