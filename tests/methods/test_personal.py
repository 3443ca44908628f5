"""FedBCD and Ditto against plain numpy programs, their identities and limits."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.methods.fedbcd import step_counts
from tests import play, toy
from tests.padding import pad
from tests.play import seven_clients as federation
from tests.reference import ditto, fedamp, fedbcd, pfedgraph, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)
BCD = {"local_batch": 4, "max_steps": 5}
NUMBERS = {
    "rho": 0.7,
    "lr_z": 0.6,
    "local_lr": 0.2,
    "local_momentum": 0.5,
    "local_weight_decay": 0.01,
}


def bcd(federation_=None, **numbers):
    return play.rounds(
        "fedbcd",
        federation_ or federation(),
        ROUNDS,
        PARTICIPANTS,
        SEED,
        hyper=NUMBERS | numbers,
        **BCD,
    )


def run_ditto(federation_=None, **numbers):
    return play.rounds(
        "ditto",
        federation_ or federation(),
        ROUNDS,
        PARTICIPANTS,
        SEED,
        hyper={"lam": 0.8} | numbers,
    )


def reference(lam):
    return ditto.run(NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, lam)


@pytest.mark.parametrize("numbers", [{}, {"lr_z": 1.0}, {"rho": 0.0, "lr_decay": 0.9}])
def test_fedbcd_follows_the_plain_program(numbers):
    out = bcd(**({"lr_decay": 1.0} | numbers))
    z, personal = fedbcd.run(
        NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, **(NUMBERS | numbers)
    )
    assert np.abs(out.states[-1].z[0] - z).max() < 1e-5
    assert np.abs(out.states[-1].personal - personal).max() < 1e-5
    assert not out.labels().any()


def test_fedbcd_draws_each_number_of_steps_by_identity():
    counts = np.asarray(step_counts(plain.round_key(0, 0), jnp.arange(2000), 5))
    assert set(counts) == {1, 2, 3, 4, 5} and np.all(np.abs(np.bincount(counts)[1:] - 400) < 90)
    other = np.asarray(step_counts(plain.round_key(0, 0), jnp.arange(1999, -1, -1), 5))
    assert np.array_equal(counts[::-1], other)


def test_fedbcd_survives_a_broken_client():
    out = bcd(toy.broken(federation(), 1), lr_decay=1.0)
    assert np.isfinite(out.states[-1].z).all() and np.isfinite(out.states[-1].personal).all()
    assert np.array_equal(out.states[-1].personal[1], out.states[0].personal[1])
    assert sum(info.nonfinite for info in out.infos) > 0


def test_fedbcd_is_scored_with_both_of_its_models_and_sends_one_each_way():
    made = federation()
    longer = pad(made, clients=1)  # one that only tests, on what the first does
    test = toy.replace(longer.test, start=longer.test.start.copy(), count=longer.test.count.copy())
    test.start[7], test.count[7] = test.start[0], test.count[0]
    longer = toy.replace(longer, test=test, uid=np.arange(8))
    settings, hyper = {"test_choice": "test_loss"}, {"lr": 9.0} | NUMBERS
    (out,) = play.batch(
        "fedbcd", longer, 2, PARTICIPANTS, [SEED], [hyper], settings=settings, **BCD
    )
    z, personal = fedbcd.run(NET, made, toy.start(SEED), SEED, 2, PARTICIPANTS, **NUMBERS)
    clients = plain.Clients(made)
    assert out.history["accuracy"][-1] == pytest.approx(
        plain.accuracy(NET, plain.Clients(longer), [z], [0] * 8)
    )
    assert out.diag["accuracy_personal"][-1] == pytest.approx(
        plain.accuracy(NET, clients, personal, range(7))
    )
    assert (
        out.history["bytes_up"][-1]
        == out.history["bytes_down"][-1]
        == 4 * 2 * PARTICIPANTS * toy.model().size
    )


def test_fedbcd_refuses_another_optimizer():
    with pytest.raises(SpecError, match="optimizer"):
        METHODS.check("fedbcd", {}, "m").check_train("method.fedbcd", Train(optimizer="adam"))


@pytest.mark.parametrize("lam", [0.0, 0.8, 5.0])
def test_ditto_follows_the_plain_program(lam):
    out, (w, personal) = run_ditto(lam=lam), reference(lam)
    assert np.abs(out.models() - personal).max() < 1e-5
    assert np.abs(out.states[-1].w[0] - w).max() < 1e-5


def test_ditto_is_fedavg_and_without_a_pull_also_local_training():
    out = run_ditto(lam=0.0)
    average, local = (
        play.rounds(name, federation(), ROUNDS, PARTICIPANTS, SEED) for name in ("fedavg", "local")
    )
    assert np.allclose(out.states[-1].w, average.models(), atol=1e-6)
    assert np.allclose(out.models(), local.models(), atol=1e-6)
    assert [tuple(i.traffic) for i in out.infos] == [tuple(i.traffic) for i in average.infos]


def test_ditto_survives_a_broken_client():
    out = run_ditto(toy.broken(federation(), 1))
    assert np.isfinite(out.models()).all() and np.array_equal(
        out.models()[1], out.states[-1].w[0]
    )  # it has no model of its own
    assert sum(info.nonfinite for info in out.infos) > 0


def test_clients_that_were_not_drawn_yet_are_scored_with_the_global_model():
    out = play.rounds("ditto", federation(), 1, 2, SEED, lam=0.8)
    drawn = np.isin(np.arange(7), plain.cohort(SEED, 0, np.arange(7), 2))
    w, personal = ditto.run(NET, federation(), toy.start(SEED), SEED, 1, 2, 0.8)
    assert np.abs(out.models() - np.where(drawn[:, None], personal, w)).max() < 1e-5


def test_clients_without_training_data_are_scored_with_the_global_model():
    out = run_ditto(toy.without_samples(federation(), 3))
    assert out.labels().tolist() == list(range(7)) and np.array_equal(
        out.models()[3], out.states[-1].w[0]
    )
    assert not np.array_equal(out.states[-1].w[0], out.states[0].w[0]) and not np.allclose(
        out.models()[2], out.models()[3]
    )


AMP = {"alpha": 0.4, "sigma": 2.0, "lam": 0.5}


@pytest.mark.parametrize("changed", [{}, {"alpha": 9.0}, {"sigma": 0.05}, {"lam": 0.0}])
def test_fedamp_follows_the_plain_program(changed):
    out = play.rounds("fedamp", federation(), ROUNDS, PARTICIPANTS, SEED, hyper=AMP | changed)
    wanted = fedamp.run(
        NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, **(AMP | changed)
    )
    assert np.abs(out.models() - wanted).max() < 1e-5


def test_fedamp_without_a_pull_is_local_training_and_with_one_is_not():
    drawn, local = (
        play.rounds(n, federation(), ROUNDS, None, SEED, hyper={"lam": 0.0})
        for n in ("fedamp", "local")
    )
    assert np.allclose(drawn.models(), local.models(), atol=1e-6)
    pulled = play.rounds("fedamp", federation(), ROUNDS, None, SEED, hyper=AMP)
    assert np.abs(pulled.models() - local.models()).max() > 1e-3


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph"])
def test_clients_not_drawn_yet_are_scored_with_the_mean_of_those_that_trained(name):
    out = play.rounds(name, federation(), 1, 2, SEED)
    drawn = np.isin(np.arange(7), plain.cohort(SEED, 0, np.arange(7), 2))
    mean = plain.average(out.models()[drawn].astype(float), plain.Clients(federation()).size[drawn])
    assert np.allclose(out.models()[~drawn], mean, atol=1e-6) and not np.allclose(
        out.models()[drawn], mean, atol=1e-3
    )


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph", "fedpac"])
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
