"""FedAvg, FedProx, oracle and local training against a plain numpy program."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.errors import SpecError
from tests import play, toy
from tests.often import rarely
from tests.reference import fedavg as reference
from tests.reference import plain

ROUNDS, PARTICIPANTS = 4, 4
UNIFORM = {"average": "uniform", "lr_decay": 0.7, "momentum": 0.5}


@pytest.fixture(scope="module")
def federation():
    """Clients of unequal numbers of samples, which weigh in means of models and of losses."""
    made = toy.federation("label_permutation", clients=7, groups=2)
    count = made.train.count - 5 * jnp.arange(7, dtype=jnp.int32)
    return toy.replace(made, train=toy.replace(made.train, count=count))


WORK = {"batch": 6, "epochs": 2}


def engine(name, federation, hyper=None, options=None, seed=0):
    return play.batch(
        name, federation, ROUNDS, PARTICIPANTS, [seed], [hyper or {}], WORK, **(options or {})
    )[0]


@pytest.mark.parametrize("name, hyper, options, local", [
    rarely("fedavg", {}, {}, {}), ("fedavg", {"lr_decay": 0.7, "momentum": 0.5}, {"average": "uniform"}, UNIFORM),
    ("fedprox", {"mu": 0.8}, {}, {"mu": 0.8}),
], ids=["fedavg", "uniform, with momentum and decay", "fedprox"])  # fmt: skip
def test_one_global_model(federation, name, hyper, options, local):
    output = engine(name, federation, hyper, options)
    net, clients, losses = plain.Net(6, 4), plain.Clients(federation), []
    history = reference.fedavg(
        net, clients, toy.start(), ROUNDS, PARTICIPANTS, 0.1, **WORK, **local, losses=losses
    )
    assert np.allclose(output.models, history[-1], atol=1e-5)
    assert np.allclose(output.history["train_loss"][1:], losses, rtol=1e-5)
    labels = np.zeros(7, int)
    curve = [plain.accuracy(net, clients, models, labels) for models in [[toy.start()], *history]]
    assert np.allclose(output.history["accuracy"], curve, atol=1e-6)
    assert np.ptp(curve) > 0.1
    sent = 4 * toy.model().size * PARTICIPANTS * np.arange(ROUNDS + 1)
    assert np.array_equal(output.history["bytes_up"], sent) and np.array_equal(
        output.history["bytes_down"], sent
    )


def test_oracle_is_fedavg_inside_the_true_groups(federation):
    output = engine("oracle", federation)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    history = reference.fedavg(
        net, clients, toy.start(), ROUNDS, PARTICIPANTS, 0.1, **WORK, labels=clients.group
    )
    assert np.allclose(output.models, history[-1], atol=1e-5)
    assert np.array_equal(output.labels[-1], clients.group)
    assert output.history["ari"][-1] == 1 and output.history["clusters"][-1] == 2


def test_oracle_needs_true_groups():
    with pytest.raises(SpecError, match="true group"):
        engine("oracle", toy.federation("iid", clients=3))


def test_local_training_keeps_to_itself(federation):
    output = engine("local", federation)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    models = reference.alone(net, clients, toy.start(), ROUNDS, PARTICIPANTS, 0.1, **WORK)
    assert np.allclose(output.models, models, atol=1e-5)
    assert np.isclose(
        output.history["accuracy"][-1], plain.accuracy(net, clients, models, np.arange(7))
    )
    assert output.history["bytes_up"][-1] == 0 and output.history["bytes_down"][-1] == 0


def test_discrepancy_is_the_distance_to_the_model_after_aggregation(federation):
    output = engine("fedavg", federation)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    history = reference.fedavg(net, clients, toy.start(), 1, PARTICIPANTS, 0.1, **WORK)
    key = plain.round_key(0, 0)
    ends = [
        plain.fit(net, toy.start(), clients.train[c], plain.local_key(key, c), 0.1, **WORK)[0]
        for c in plain.cohort(0, 0, clients.uid, PARTICIPANTS)
    ]
    want = np.mean([np.linalg.norm(w - history[0][0]) for w in ends])
    assert np.isclose(output.history["discrepancy"][1], want, rtol=1e-4)


def test_seeds_differ_and_repeat(federation):
    a, b, again = (engine("fedavg", federation, seed=s) for s in (1, 2, 1))
    assert np.array_equal(a.models, again.models)
    assert not np.allclose(a.models, b.models)
