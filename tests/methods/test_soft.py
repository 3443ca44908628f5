"""FedEM, FedRC and FedSoft against plain numpy programs, their identities and limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.methods.fedrc import label_weights
from tests import play, toy
from tests.reference import fedem, fedrc, plain

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


@pytest.mark.parametrize("made", ["label_permutation", "dirichlet"])
def test_fedrc_follows_the_plain_program(made):
    made = toy.federation(made, clients=8, **({"groups": 2} if made == "label_permutation" else {"alpha": 0.5}))
    out, net = run("fedrc", made, clusters=3), plain.Net(6, 4)
    start, clients = out.states[0].em.models, plain.Clients(made)
    models, mixture, sums = fedrc.fedrc(net, clients, start, 4, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK)
    state = out.states[-1]
    assert np.abs(out.models() - models).max() < 1e-5
    assert np.abs(state.em.mixture - mixture).max() < 1e-5
    assert np.abs(state.by_label - sums).max() < 1e-4
    plainer, other, _ = fedrc.fedrc(net, clients, start, 4, SEED, 1, PARTICIPANTS, 0.1, **WORK)
    em = fedem.fedem(net, clients, start, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK)
    assert np.abs(mixture - em[1]).max() > 0.01  # the division matters
    weights = fedrc.weights_of_labels(sums)
    found = np.asarray(out.method.mixture(state, made, {}))
    for c in np.flatnonzero(~np.asarray(state.em.drawn)):
        pi = np.full(3, 1 / 3)
        for _ in range(10):
            pi = fedrc.shares(net, models, pi, weights, *clients.train[c]).mean(axis=1)
        assert np.abs(found[c] - pi).max() < 1e-5


def test_fedrc_that_does_not_divide_is_fedem():
    rc, em = run("fedrc", clusters=3, divide=False), run("fedem", clusters=3)
    assert np.array_equal(rc.models(), em.models()) and np.array_equal(rc.states[-1].em.mixture, em.states[-1].mixture)
    divided = run("fedrc", clusters=3, rounds=1)
    assert np.allclose(divided.models(), run("fedem", clusters=3, rounds=1).models(), atol=1e-6)  # all labels weigh the same at first
    assert [[int(n) for n in info.traffic] for info in rc.infos[:1]] == [[15, 15, 5 * 12, 5 * 12]]


def test_labels_that_nobody_has_had_weigh_the_same_everywhere():
    weights = label_weights(jnp.array([[3.0, 1.0, 0.0], [0.0, 2.0, 0.0]]))
    assert np.allclose(weights, [[0.75, 0.25, 1 / 3], [1e-6, 1.0, 1 / 3]])
