"""FedEM, FedRC and FedSoft against plain numpy programs, their identities and limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import play, toy
from tests.reference import fedem, plain

SEED, ROUNDS, PARTICIPANTS = 2, 4, 5
WORK = {"epochs": 2, "batch": 5}


@functools.cache
def federation():
    return toy.federation("label_permutation", clients=8, groups=2)


def run(name, federation_=None, rounds=ROUNDS, work=None, model=None, **options):
    return play.rounds(name, federation_ or federation(), rounds, PARTICIPANTS, SEED, work=WORK | (work or {}), model=model, **options)


@pytest.mark.parametrize("hidden", [None, 7])
@pytest.mark.parametrize("average", ["samples", "uniform"])
def test_fedem_follows_the_plain_program(hidden, average):
    made = toy.federation(clients=8)
    out = run("fedem", made, model=toy.model(hidden), clusters=3, average=average)
    clients = plain.Clients(made)
    if average == "uniform":
        clients.size = np.ones(8)
    net = plain.Net(6, 4, hidden)
    models, mixture = fedem.fedem(net, clients, out.states[0].models, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK)
    assert np.abs(out.models() - models).max() < 1e-5
    assert np.abs(out.states[-1].mixture - mixture).max() < 1e-5
    assert np.ptp(mixture, axis=0).max() > 0.05


def test_fedem_with_one_model_is_fedavg():
    one, average = run("fedem", clusters=1), run("fedavg")
    assert np.allclose(one.models(), average.models(), atol=1e-6)
    assert [tuple(i.traffic) for i in one.infos] == [tuple(i.traffic) for i in average.infos]


@pytest.mark.parametrize("steps", [1, 10])
def test_who_was_not_drawn_has_the_mixture_of_its_own_samples(steps):
    out = run("fedem", rounds=1, clusters=3, newcomer_steps=steps)
    state, clients, net = out.states[-1], plain.Clients(federation()), plain.Net(6, 4)
    found = np.asarray(out.method.mixture(state, federation(), {}))
    drawn = np.isin(np.arange(8), plain.cohort(SEED, 0, clients.uid, PARTICIPANTS))
    assert np.array_equal(found[drawn], np.asarray(state.mixture)[drawn])
    for c in np.flatnonzero(~drawn):
        pi = np.full(3, 1 / 3)
        for _ in range(steps):
            losses = np.array([net.losses(w, *clients.train[c]) for w in out.models().astype(np.float64)])
            pi = fedem.softmax(np.log(pi)[:, None] - losses).mean(axis=1)
        assert np.abs(found[c] - pi).max() < 1e-5 and np.ptp(pi) > 0.01
    assert np.array_equal(out.labels(), np.where(drawn, np.asarray(state.mixture).argmax(axis=1), -1))
    assert np.array_equal(out.method.score(state, federation(), {}), found.argmax(axis=1))
