"""StoCFL and FedDrift, whose clusters become one in the course of a run, against plain numpy
programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.methods import METHODS
from cfljax.methods.feddrift import DriftMemory, LossComparison, begin_models, merge_map
from cfljax.methods.stocfl import Seen, assign_new_clients
from cfljax.registry.options import list_traced
from cfljax.round.ask import Ask
from cfljax.round.state import State
from cfljax.types import Cohort
from tests import play, toy
from tests.often import rarely
from tests.reference import feddrift, plain, stocfl

SEED, PARTICIPANTS = 2, 4
WORK = {"epochs": 2, "batch": 5}
NET = plain.Net(6, 4)


@functools.cache
def federation():
    return toy.federation("label_permutation", clients=10, groups=2)


@functools.cache
def skewed():
    return toy.federation("dirichlet", clients=10, alpha=0.5)


def stochastic(made, rounds=6, **options):
    return play.rounds("stocfl", made, rounds, PARTICIPANTS, SEED, work=WORK, **options)


def clusters_of(out, t=-1):
    """The members of each cluster -> its number."""
    labels = out.labels(t)
    return {
        frozenset(np.flatnonzero(labels == k).tolist()): int(k)
        for k in np.unique(labels[labels >= 0])
    }


@pytest.mark.parametrize(
    ("made", "average", "tau", "lam", "first"),
    [
        rarely(federation, "samples", 0.3, 0.5, 2),
        rarely(skewed, "samples", 0.75, 0.1, 1),
        (skewed, "uniform", 0.6, 0.5, 1),
    ],
)
def test_stocfl_follows_the_plain_program(made, average, tau, lam, first):
    out = stochastic(made(), average=average, tau=tau, lam=lam, pretrain_epochs=first)
    numbers = (SEED, 6, PARTICIPANTS, 0.1, 5, 2, tau, lam, first, average)
    history = stocfl.stocfl(NET, plain.Clients(made()), toy.start(SEED), *numbers)
    for t, (models, w, _) in enumerate(history, 1):
        found = clusters_of(out, t)
        assert found.keys() == models.keys()
        for members, k in found.items():
            assert np.abs(out.models(t)[k] - models[members]).max() < 1e-5
        assert np.abs(out.models(t)[-1] - w).max() < 1e-5
    grown = [{frozenset(c) for c in models} for models, *_ in history]
    late = [
        c
        for before, after in zip(grown, grown[1:], strict=False)
        for c in after
        if sum(b < c for b in before) > 1
    ]
    assert late or made is federation  # clusters that have models become one, too


def test_the_two_sums_of_a_round_of_stocfl_get_noise_that_is_not_the_same():
    alone = {"max_clusters": 1, "lam": 0.0, "rounds": 1}  # then both sums are of the same updates
    quiet, noisy = (
        stochastic(
            federation(), hyper={"privacy.clip": 1.0, "privacy.noise": noise}, **alone
        ).models()
        for noise in (0.0, 2.0)
    )
    one, other = noisy - quiet
    assert np.allclose(*quiet, atol=1e-6) and one.std() == pytest.approx(other.std(), rel=0.5)
    assert np.std(one - other) > 0.5 * one.std() and abs(np.corrcoef(one, other)[0, 1]) < 0.6


def test_stocfl_sends_two_models_and_first_moves_once():
    out, seen = stochastic(federation()), set()
    for t, info in enumerate(out.infos):
        present = set(plain.cohort(SEED, t, np.arange(10), PARTICIPANTS).tolist())
        vectors = 2 * PARTICIPANTS + len(present - seen)
        assert tuple(map(int, info.traffic)) == (vectors, vectors, 0, 0)
        seen |= present
    assert len(seen) == 10


def test_stocfl_scores_who_was_not_drawn_by_the_first_move_or_with_the_global_model():
    out, group = stochastic(federation(), rounds=1, tau=0.0), np.asarray(federation().group)
    state, hyper, score = (
        out.states[-1],
        {"lr": np.float32(0.1), "tau": np.float32(0.0)},
        jax.jit(out.method.score),
    )
    scored = np.asarray(score(state, federation(), hyper))
    drawn = out.labels() >= 0
    of_group = {g: int(out.labels()[drawn & (group == g)][0]) for g in (0, 1)}
    assert not drawn.all() and scored.tolist() == [of_group[g] for g in group]
    apart = np.asarray(score(state, federation(), hyper | {"tau": np.float32(1.0)}))
    assert (apart[~drawn] == len(out.models()) - 1).all() and (apart[drawn] == scored[drawn]).all()


@pytest.mark.long
def test_stocfl_compares_sketches_or_first_moves_as_they_are():
    model = toy.model(700)
    exact, short = (
        play.rounds(
            "stocfl", federation(), 2, None, work={"stream": 3}, model=model, similarity=how
        )
        for how in ("exact", "sketch")
    )
    assert (
        exact.states[0].memory.moves.shape[1] == 7704
        and short.states[0].memory.moves.shape[1] == 4096
    )
    assert (exact.labels() == short.labels()).all() and np.allclose(
        exact.models(), short.models(), atol=1e-5
    )


def test_stocfl_without_room_puts_clients_into_the_most_similar_cluster():
    w, labels = np.zeros((1, 3), np.float32), np.array([0, -1, -1, -1, -1, -1], np.int32)
    seen = Seen(w[0], np.array([[2.0, 0.0], [0.0, 0.0]], np.float32), np.array([2, 0], np.int32))
    state = State(np.ones((2, 3), np.float32), labels, memory=seen, whole=w)
    psi = np.array([[0.6, 0.8], [0.8, 0.6], [0.1, 1.0], [9.0, 9.0]], np.float32)
    uid = np.arange(10, dtype=np.int32)[::-1]  # by identity client 4 comes first, but it is not new
    new, tau = np.array([True, True, True, False]), np.float32(0.999)

    made = toy.replace(federation(), uid=uid)

    @jax.jit
    def place(made, there, *given):
        return assign_new_clients(Ask(None, None, made, there, {"tau": tau}), *given)

    after, crowded = place(made, present(1, 2, 3, 4), state, psi, new)
    assert after.labels.tolist() == [0, 1, 0, 1, -1, -1] and int(crowded) == 2
    assert after.memory.members.tolist() == [3, 2] and np.allclose(
        after.memory.moves, [[2.8, 0.6], [0.7, 1.8]]
    )
    assert (after.models[0] == 1).all() and (
        after.models[1] == 0
    ).all()  # client 3 came first, and its cluster begins at ω


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


DRIFTS = {"max_clusters": 12, "delta": 0.1, "every": 3, "begin": "one"}


@pytest.mark.parametrize(("participants", "options"), [
    rarely(10, {}), (6, {"begin": "each", "every": 2, "max_clusters": 6}),
    rarely(10, {"begin": "each", "max_clusters": 4, "delta": 0.03}),
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


def present(*ids):
    return Cohort(
        np.array(ids, np.int32), np.ones(len(ids), bool), np.ones(len(ids), np.float32), np.int32(0)
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


@pytest.mark.parametrize(("name", "sums"), [("stocfl", 2), ("feddrift", 1)])
def test_what_they_hold_and_make_public(name, sums):
    config = METHODS.check(name, {"max_clusters": 5}, "m")
    assert config.releases(7) == (sums * 7, 0) and config.models_kept == 5
