"""Models that are shared in part (`train.parts`) against a plain numpy program, their identities, what is sent, and refusals."""

import functools

import jax
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.config.parts import check_parts
from cfljax.errors import SpecError
from cfljax.local.parts import head_of, parts_of
from cfljax.methods import METHODS
from cfljax.methods.shared.parts import make_in_parts
from cfljax import keys, models
from cfljax.methods.shared.common import first_models
from cfljax.registry.options import static
from tests import play, toy
from tests.reference import parts, plain

SEED, ROUNDS, PARTICIPANTS, HIDDEN = 5, 3, 5, 7
NET = plain.Net(6, 4, HIDDEN)
MODEL = toy.model(HIDDEN)
HEAD = np.arange(MODEL.size) >= 7 + 42


@functools.cache
def federation():
    return toy.federation("dirichlet", clients=7, alpha=0.5)


def kinds(table):
    out = np.full(MODEL.size, "cluster")
    out[~HEAD], out[HEAD] = table.get("body", "cluster"), table.get("head", "cluster")
    return out


def run(name, table, work=None, rounds=ROUNDS, fed=None, hyper=None, **options):
    """(states, infos, method) of some rounds."""
    config = METHODS.check(name, options, f"method.{name}")
    solver = toy.solver(MODEL, **(work or {}))
    method = make_in_parts(METHODS.entry(name).make, static(config), MODEL, solver, tuple(table.items()))
    key, numbers = keys.root(SEED), {"lr": np.float32(0.1)} | (hyper or {})
    fed = fed or federation()
    prepared = {} if method.setup is None else method.setup(key, fed, numbers | {"participants": PARTICIPANTS})
    states, infos = [jax.jit(method.init)(key, fed, numbers, prepared)], []
    step = jax.jit(method.round)
    for t in range(rounds):
        each = keys.fold(key, "round", t)
        state, info = step(each, states[-1], fed, play.cohort.draw(each, fed, PARTICIPANTS, np.int32(t), numbers), numbers)
        states, infos = [*states, state], [*infos, info]
    return play.Played(states, infos, method)


def starts(k):
    return np.asarray(first_models(keys.root(SEED), MODEL, k), np.float64)


@pytest.mark.parametrize("average", ["uniform", "samples"])
@pytest.mark.parametrize("table", [{"body": "all"}, {"head": "all"}, {"head": "client"}, {"body": "all", "head": "client"}])
def test_ifca_in_parts_follows_the_plain_program(table, average):
    out = run("ifca", table, clusters=3, average=average)
    clients = plain.Clients(federation())
    wanted, own, labels = parts.run(NET, clients, starts(3), SEED, ROUNDS, PARTICIPANTS, kinds(table), average)
    inner, home = out.states[-1].inner, kinds(table) == "client"
    away = ~home
    assert np.array_equal(inner.labels, labels)
    assert np.abs(np.asarray(inner.models)[:, away] - wanted[:, away]).max() < 1e-5
    if home.any():
        assert np.abs(np.asarray(out.states[-1].own) - own[:, home]).max() < 1e-5
        mine, guess = out.models(), np.asarray(out.states[-1].guess)
        assert np.abs(mine - np.where(home, own, wanted[guess])).max() < 1e-5


@pytest.mark.parametrize(("name", "table"), [("fedper", {"head": "client"}), ("lg_fedavg", {"body": "client"})])
def test_fedper_and_lg_fedavg_follow_the_plain_program(name, table):
    out = play.rounds(name, federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL)
    clients = plain.Clients(federation())
    wanted, own, _ = parts.run(NET, clients, starts(1), SEED, ROUNDS, PARTICIPANTS, kinds(table), "samples", assign=[0] * 7)
    assert np.abs(out.models() - np.where(kinds(table) == "client", own, wanted[0])).max() < 1e-5
    assert out.labels().tolist() == list(range(7))


@pytest.mark.parametrize("epochs", [1, 2])
def test_fedrep_follows_the_plain_program(epochs):
    work = {"epochs": epochs}
    out = play.rounds("fedrep", federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL, work=work, head_epochs=2)
    clients, home = plain.Clients(federation()), kinds({"head": "client"})
    turns = {"epochs": epochs, "alternate": (2, HEAD)}
    wanted, own, _ = parts.run(NET, clients, starts(1), SEED, ROUNDS, PARTICIPANTS, home, "uniform", assign=[0] * 7, **turns)
    assert np.abs(out.models() - np.where(home == "client", own, wanted[0])).max() < 1e-5


@pytest.mark.parametrize("table", [{"body": "all"}, {"head": "client"}])
def test_all_ways_of_training_give_the_same(table):
    ways = ({}, {"gram": 500}, {"sequential": False}, {"stream": 2}, {"lanes": 2})
    plainly, *others = (run("ifca", table, work, clusters=2) for work in ways)
    for other in others:
        assert np.allclose(plainly.models(), other.models(), atol=1e-5)
        assert np.array_equal(plainly.labels(), other.labels())


METHODS_IN_PARTS = [name for name in METHODS if METHODS.entry(name).options.averaged and not METHODS.entry(name).options.parts]


@pytest.mark.parametrize("name", METHODS_IN_PARTS)
def test_what_everybody_shares_is_equal_in_all_clusters_and_the_rest_is_not(name):
    options = play.options(name)
    fed = jax.device_put(play.nine_clients())
    from cfljax.registry.options import traced

    hyper = {k: np.float32(v) for k, v in traced(METHODS.check(name, options, "m")).items()}
    out = run(name, {"body": "all"}, rounds=2, fed=fed, hyper=hyper, **options)
    models = out.models()
    assert np.allclose(models[:, ~HEAD], models[0, ~HEAD]) and not np.allclose(models[0, ~HEAD], out.models(0)[0, ~HEAD])
    if len(models) > 1:
        assert not np.allclose(models[:, HEAD], models[0, HEAD])


@pytest.mark.parametrize("name", METHODS_IN_PARTS)
def test_what_stays_with_a_client_changes_with_its_own_training_only(name):
    options = play.options(name)
    fed = jax.device_put(play.nine_clients())
    from cfljax.registry.options import traced

    hyper = {k: np.float32(v) for k, v in traced(METHODS.check(name, options, "m")).items()}
    out = run(name, {"head": "client"}, rounds=2, fed=fed, hyper=hyper, **options)
    drawn = [
        np.asarray(play.cohort.draw(keys.fold(keys.root(SEED), "round", t), fed, PARTICIPANTS, np.int32(t), hyper).ids)
        for t in (0, 1)
    ]
    for t in (0, 1):
        moved = np.any(np.asarray(out.states[t + 1].own) != np.asarray(out.states[t].own), axis=1)
        assert sorted(np.flatnonzero(moved)) == sorted(drawn[t])
    heads = [np.asarray(getattr(state.inner, METHODS.entry(name).options.averaged[0]))[:, HEAD] for state in out.states]
    assert all(np.array_equal(head, heads[0]) for head in heads)
