"""FedEM against a plain numpy program, and the mixtures of clients that were not drawn."""

import numpy as np
import pytest

from cfljax.methods import METHODS
from cfljax.round.soft import NEWCOMER_STEPS
from tests import toy
from tests.methods.soft import PARTICIPANTS, ROUNDS, SEED, WORK, federation, run
from tests.often import rarely
from tests.reference import fedem, plain


@pytest.mark.parametrize(
    ("average", "hidden"),
    [("samples", 7), *map(rarely, ("uniform", "samples", "uniform"), (None, None, 7))],
)
def test_fedem_follows_the_plain_program(hidden, average):
    made = toy.federation(clients=8)
    out = run("fedem", made, model=toy.model(hidden), clusters=3, average=average)
    clients = plain.Clients(made)
    if average == "uniform":
        clients.size = np.ones(8)
    net = plain.Net(6, 4, hidden)
    models, mixture = fedem.fedem(
        net, clients, out.states[0].models, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK
    )
    assert np.abs(out.models() - models).max() < 1e-5
    assert np.abs(out.states[-1].mixture - mixture).max() < 1e-5
    assert np.ptp(mixture, axis=0).max() > 0.05


def test_who_was_not_drawn_has_the_mixture_of_its_own_samples():
    out = run("fedem", rounds=1, clusters=3)
    state, clients, net = out.states[-1], plain.Clients(federation()), plain.Net(6, 4)
    found = np.asarray(out.method.mixture(state, federation(), {}))
    drawn = np.isin(np.arange(8), plain.cohort(SEED, 0, clients.uid, PARTICIPANTS))
    assert np.array_equal(found[drawn], np.asarray(state.mixture)[drawn])
    for c in np.flatnonzero(~drawn):
        pi = np.full(3, 1 / 3)
        for _ in range(NEWCOMER_STEPS):
            losses = np.array(
                [net.losses(w, *clients.train[c]) for w in out.models().astype(np.float64)]
            )
            pi = fedem.softmax(np.log(pi)[:, None] - losses).mean(axis=1)
        assert np.abs(found[c] - pi).max() < 1e-5 and np.ptp(pi) > 0.01
    assert np.array_equal(
        out.labels(), np.where(drawn, np.asarray(state.mixture).argmax(axis=1), -1)
    )
    assert np.array_equal(out.method.score(state, federation(), {}), found.argmax(axis=1))


def test_a_round_of_fedem_publishes_a_sum_for_each_model():
    assert METHODS.check("fedem", {"clusters": 4}, "m").releases(5) == (20, 0)
