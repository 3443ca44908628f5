"""Sattler's CFL against a plain numpy program, its rules for a split, its limits and newcomers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS, cfl_sattler
from cfljax.round.state import State
from tests import play, toy
from tests.methods.host_clusters import (
    CLIENTS,
    NET,
    ROUNDS,
    SEED,
    arriving,
    check,
    federation,
    plain_rounds,
    same,
)
from tests.reference import host_clusters as reference
from tests.reference import plain

SPLIT = {"min_rounds": 1, "max_clusters": 4}


def sattler(federation_=None, eps1=0.6, eps2=0.5, rounds=ROUNDS, hyper=None, **options):
    hyper = {"eps1": eps1, "eps2": eps2, "gamma_max": 0.0} | (hyper or {})
    return play.rounds(
        "cfl_sattler",
        federation_ or federation(),
        rounds,
        None,
        SEED,
        hyper=hyper,
        **(SPLIT | options),
    )


@pytest.mark.parametrize(("eps1", "eps2"), [(0.6, 0.5), (9.0, 0.0), (0.6, 9.0), (0.0, 0.5)])
def test_sattler_follows_the_plain_program(eps1, eps2):
    rounds = 3 if eps1 == 9.0 else ROUNDS  # with these numbers every cluster splits at each look
    rule = reference.sattler(plain.Clients(federation()), eps1, eps2, 1, 2, rounds)
    models, labels = plain_rounds(rule, rounds=rounds)
    check(sattler(eps1=eps1, eps2=eps2, rounds=rounds), models, labels)
    assert len(models) == {(0.6, 0.5): 2, (9.0, 0.0): 4}.get((eps1, eps2), 1)


@pytest.mark.parametrize("gamma_max", [0.0, 0.2, 1.0])
def test_sattler_guards_a_split_by_gamma_max(gamma_max):
    rule = reference.sattler(plain.Clients(federation()), 0.6, 0.5, 1, 2, ROUNDS, gamma_max)
    models, labels = plain_rounds(rule)
    check(sattler(hyper={"gamma_max": gamma_max}), models, labels)
    assert len(models) == (1 if gamma_max == 1 else 2)


def halves(similar, eps=(1.0, 0.0), norms=None, step=0.0, **more):
    """i32[n] the parts into which clients with these cosines are split. `norms`: of updates, whose
    mean has the norm `step`."""
    n = len(similar)
    nobody, norms = np.array([-1, -1]), np.ones(n) if norms is None else np.array(norms)
    looked = cfl_sattler.SplitStatistics(
        similar.astype(np.float32), norms, np.full(2, step), nobody, nobody.copy()
    )
    state = State(
        np.zeros((2, 1)), np.zeros(n, np.int32), active=np.array([True, False]), memory=looked
    )
    return cfl_sattler.split(state, np.arange(n), *eps, 1, 5, **more).labels


@pytest.mark.parametrize(
    ("norms", "step", "parts"),
    [([0.1, 0.1, 0.9], 0.3, 2), ([0.1, 0.1, 0.7], 0.3, 1), ([0.9, 0.9, 0.9], 0.5, 1)],
)
def test_a_split_needs_a_small_mean_of_updates_of_which_one_is_large(norms, step, parts):
    """With eps1 = 0.4 and eps2 = 0.8."""
    assert halves(np.eye(3), (0.4, 0.8), norms, step).max() + 1 == parts


@pytest.mark.parametrize(
    ("across", "gamma_max", "parts"),
    [(0.5, 0.0, 2), (0.5, 0.49, 2), (0.5, 0.51, 1), (-1.0, 0.99, 2)],
)
def test_a_split_needs_gamma_max_below_what_the_cosines_across_allow(across, gamma_max, parts):
    """γ_max < √((1 − α)/2), α being the largest cosine across: √(0.5/2) = 0.5."""
    similar = np.array([[1, 0.9, across], [0.9, 1, across], [across, across, 1]])
    assert halves(similar, gamma_max=gamma_max).max() + 1 == parts


def test_sattler_finds_the_groups_and_keeps_the_family_tree():
    out = sattler()
    assert same(out.labels(), np.asarray(federation().group))
    parent, born = out.states[-1].memory.parent, out.states[-1].memory.born
    assert parent.tolist() == [-1, 0, -1, -1] and born[0] == 0 and 1 <= born[1] < ROUNDS
    family = out.method.extras(out.states[-1])
    assert set(family) == {"parent", "born"}


def test_without_a_split_sattler_is_fedavg():
    out, average = sattler(eps1=0.0), play.rounds("fedavg", federation(), ROUNDS, None, SEED)
    assert np.allclose(out.models()[0], average.models()[0], atol=1e-6)
    assert [tuple(i.traffic) for i in out.infos] == [tuple(i.traffic) for i in average.infos]


def test_sattler_looks_at_declared_rounds_only():
    config = METHODS.check("cfl_sattler", {"min_rounds": 20, "split_every": 5}, "method")
    method = METHODS.entry("cfl_sattler").make(config, toy.model(), toy.solver(toy.model()))
    assert method.regroup_after(36) == (20, 25, 30, 35) and method.regroup_after(20) == ()


def test_sattler_leaves_small_clusters_whole():
    assert not sattler(min_size=CLIENTS).labels().any()
    state, uid = sattler().states[1], np.arange(CLIENTS)
    assert not cfl_sattler.split(state, uid, 9.0, 0.0, CLIENTS, 1).labels.any()
    assert cfl_sattler.split(state, uid, 9.0, 0.0, CLIENTS - 1, 1).labels.any()


def test_sattler_has_no_more_clusters_than_room():
    with pytest.raises(SpecError, match="max_clusters = 4"):
        sattler(eps1=9.0, eps2=0.0)


def test_sattler_survives_identical_clients():
    alike = sattler(toy.identical(federation()), eps1=9.0, eps2=0.0, rounds=2)
    assert np.isfinite(alike.models()).all()


def test_sattler_newcomers_join_the_cluster_with_the_least_loss():
    out = sattler(arriving())
    clients = plain.Clients(federation())
    assert all(out.labels(t)[-1] == -1 for t in range(4))
    at_arrival = out.models(3)[: out.states[3].active.sum()]
    losses = [NET.loss(w.astype(np.float64), *clients.train[-1]) for w in at_arrival]
    assert len(losses) == 2 and out.labels(4)[-1] == np.argmin(losses)
    scored = out.method.score(jax.tree.map(jnp.asarray, out.states[3]), arriving(), {})
    assert scored[-1] == np.argmin(losses) and np.array_equal(scored[:-1], out.labels(3)[:-1])


def test_sattler_wants_everybody_in_each_round():
    config = METHODS.check("cfl_sattler", {}, "method")
    for train in (Train(participation=0.5), Train(participation=4), Train(dropout=0.1)):
        with pytest.raises(SpecError, match="all members of a cluster take part in each round"):
            config.check_run("method.cfl_sattler", train, None, None)
    config.check_run("method.cfl_sattler", Train(), None, None)


def test_sattler_runs_in_the_engine_between_its_chunks():
    hypers = [{"eps1": eps1, "eps2": 0.5, "gamma_max": 0.0} for eps1 in (0.6, 0.0)]
    seeds = [SEED, SEED]
    split, whole = play.batch(
        "cfl_sattler",
        federation(),
        ROUNDS,
        None,
        seeds,
        hypers,
        settings={"evaluations": ROUNDS},
        **SPLIT,
    )
    mine = sattler()
    assert np.array_equal(split.labels[-1], mine.labels()) and np.allclose(
        split.models, mine.models(), atol=1e-6
    )
    assert (
        split.history["clusters"][-1] == 2
        and split.history["ari"][-1] == 1.0
        and not whole.labels.any()
    )
