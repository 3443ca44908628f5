"""StoCFL against a plain numpy program, its bill, and whom it puts where."""

import functools

import jax
import numpy as np
import pytest

from cfljax.methods import METHODS
from cfljax.methods.stocfl import FirstUpdates, assign_new_clients
from cfljax.round.ask import Ask
from cfljax.round.state import State
from tests import play, toy
from tests.methods.merging import NET, PARTICIPANTS, SEED, WORK, federation, present
from tests.often import rarely
from tests.reference import plain, stocfl


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
    seen = FirstUpdates(
        w[0], np.array([[2.0, 0.0], [0.0, 0.0]], np.float32), np.array([2, 0], np.int32)
    )
    state = State(np.ones((2, 3), np.float32), labels, memory=seen, global_model=w)
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


def test_what_they_hold_and_make_public():
    config = METHODS.check("stocfl", {"max_clusters": 5}, "m")
    assert config.releases(7) == (2 * 7, 0) and config.models_kept == 5
