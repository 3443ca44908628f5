"""Methods that give each client a mixture of the others' models, against plain numpy programs."""

import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play, toy
from tests.play import seven_clients as federation
from tests.reference import fedamp, pfedgraph, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)
AMP = {"alpha": 0.4, "sigma": 2.0, "lam": 0.5}


@pytest.mark.parametrize("changed", [{}, {"alpha": 9.0}, {"sigma": 0.05}, {"lam": 0.0}])
def test_fedamp_follows_the_plain_program(changed):
    out = play.rounds("fedamp", federation(), ROUNDS, PARTICIPANTS, SEED, hyper=AMP | changed)
    wanted = fedamp.run(NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, **(AMP | changed))
    assert np.abs(out.models() - wanted).max() < 1e-5


def test_fedamp_without_a_pull_is_local_training_and_with_one_is_not():
    drawn, local = (play.rounds(n, federation(), ROUNDS, None, SEED, hyper={"lam": 0.0}) for n in ("fedamp", "local"))
    assert np.allclose(drawn.models(), local.models(), atol=1e-6)
    pulled = play.rounds("fedamp", federation(), ROUNDS, None, SEED, hyper=AMP)
    assert np.abs(pulled.models() - local.models()).max() > 1e-3


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph"])
def test_clients_not_drawn_yet_are_scored_with_the_mean_of_those_that_trained(name):
    out = play.rounds(name, federation(), 1, 2, SEED)
    drawn = np.isin(np.arange(7), plain.cohort(SEED, 0, np.arange(7), 2))
    mean = plain.average(out.models()[drawn].astype(float), plain.Clients(federation()).size[drawn])
    assert np.allclose(out.models()[~drawn], mean, atol=1e-6) and not np.allclose(out.models()[drawn], mean, atol=1e-3)


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph"])
@pytest.mark.parametrize("table", [{"privacy": {"clip": 1.0, "noise": 0.5}}, {"robust": "median"}])
def test_noise_and_robust_rules_are_refused(name, table):
    config = METHODS.check(name, {}, "m")
    config.check_train("method", Train())
    config.check_train("method", Train(privacy={"clip": 1.0, "noise": 0.0}))
    with pytest.raises(SpecError, match=r"mixture"):
        config.check_train("method", Train(**table))


@pytest.mark.parametrize("lam", [0.05, 0.8, 4.0])
def test_pfedgraph_follows_the_plain_program(lam):
    out = play.rounds("pfedgraph", federation(), ROUNDS, PARTICIPANTS, SEED, hyper={"lam": lam})
    wanted = pfedgraph.run(NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, lam)
    assert np.abs(out.models() - wanted).max() < 1e-5


def test_pfedgraph_is_fedavg_where_similarity_does_not_count():
    out, average = (
        play.rounds("pfedgraph", federation(), ROUNDS, None, SEED, lam=1e6),
        play.rounds("fedavg", federation(), ROUNDS, None, SEED),
    )
    mean = plain.average(out.models().astype(float), plain.Clients(federation()).size)
    assert np.allclose(mean, average.models()[0], atol=1e-5)
