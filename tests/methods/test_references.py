"""FedAvg, FedProx, oracle and local training against a plain numpy program."""

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.engine.assembled import Assembled
from cfljax.engine.program import Settings
from cfljax.engine.simulate import simulate
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.methods.shared.common import first_model
from tests import toy
from tests.reference import fedavg as reference
from tests.reference import plain

ROUNDS, PARTICIPANTS = 4, 4
UNIFORM = {"average": "uniform", "lr_decay": 0.7, "momentum": 0.5}


@pytest.fixture(scope="module")
def federation():
    return toy.federation("label_permutation", clients=7, groups=2)


def engine(name, federation, model, hyper=None, options=None, seed=0, **work):
    entry = METHODS.entry(name)
    method = entry.make(entry.options(**(options or {})), model, toy.solver(model, **work))
    settings = Settings(ROUNDS, PARTICIPANTS, evaluations=5)
    return simulate(Assembled(method, model, federation, settings), [seed], [{"lr": 0.1} | (hyper or {})])[0]


def start(model, seed=0):
    return np.asarray(first_model(keys.root(seed), model), np.float64)


@pytest.mark.parametrize(
    "name, hyper, options, local",
    [
        ("fedavg", {}, {}, {}),
        ("fedavg", {"lr_decay": 0.7, "momentum": 0.5}, {"average": "uniform"}, UNIFORM),
        ("fedprox", {"mu": 0.8}, {}, {"mu": 0.8}),
    ],
    ids=["fedavg", "uniform, with momentum and decay", "fedprox"],
)
def test_one_global_model(federation, name, hyper, options, local):
    model = toy.model()
    output = engine(name, federation, model, hyper, options, batch=6, epochs=2)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    history = reference.fedavg(net, clients, start(model), ROUNDS, PARTICIPANTS, 0.1, batch=6, epochs=2, **local)
    assert np.allclose(output.models, history[-1], atol=1e-5)
    labels = np.zeros(7, int)
    curve = [plain.accuracy(net, clients, models, labels) for models in [[start(model)], *history]]
    assert np.allclose(output.history["accuracy"], curve, atol=1e-6)
    assert np.ptp(curve) > 0.1
    sent = 4 * model.size * PARTICIPANTS * np.arange(ROUNDS + 1)
    assert np.array_equal(output.history["bytes_up"], sent) and np.array_equal(output.history["bytes_down"], sent)


def test_fedprox_with_mu_zero_is_fedavg(federation):
    model = toy.model()
    a, b = engine("fedavg", federation, model), engine("fedprox", federation, model, {"mu": 0.0})
    assert np.array_equal(a.models, b.models)


def test_oracle_is_fedavg_inside_the_true_groups(federation):
    model = toy.model()
    output = engine("oracle", federation, model, batch=6)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    history = reference.fedavg(net, clients, start(model), ROUNDS, PARTICIPANTS, 0.1, batch=6, labels=clients.group)
    assert np.allclose(output.models, history[-1], atol=1e-5)
    assert np.array_equal(output.labels[-1], clients.group)
    assert output.history["ari"][-1] == 1 and output.history["clusters"][-1] == 2


def test_oracle_needs_true_groups():
    with pytest.raises(SpecError, match="true group"):
        engine("oracle", toy.federation("iid", clients=3), toy.model())


def test_local_training_keeps_to_itself(federation):
    model = toy.model()
    output = engine("local", federation, model, batch=6)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    models = reference.alone(net, clients, start(model), ROUNDS, PARTICIPANTS, 0.1, batch=6)
    assert np.allclose(output.models, models, atol=1e-5)
    assert np.isclose(output.history["accuracy"][-1], plain.accuracy(net, clients, models, np.arange(7)))
    assert output.history["bytes_up"][-1] == 0 and output.history["bytes_down"][-1] == 0


def test_discrepancy_is_the_distance_to_the_model_after_aggregation(federation):
    model = toy.model()
    output = engine("fedavg", federation, model, batch=6)
    net, clients = plain.Net(6, 4), plain.Clients(federation)
    history = reference.fedavg(net, clients, start(model), 1, PARTICIPANTS, 0.1, batch=6)
    key = plain.round_key(0, 0)
    ends = [
        plain.fit(net, start(model), clients.train[c], plain.local_key(key, c), 0.1, batch=6)[0]
        for c in plain.cohort(0, 0, clients.uid, PARTICIPANTS)
    ]
    want = np.mean([np.linalg.norm(w - history[0][0]) for w in ends])
    assert np.isclose(output.history["discrepancy"][1], want, rtol=1e-4)


def test_seeds_differ_and_repeat(federation):
    model = toy.model()
    a, b, again = (engine("fedavg", federation, model, seed=s) for s in (1, 2, 1))
    assert np.array_equal(a.models, again.models)
    assert not np.allclose(a.models, b.models)
    jax.clear_caches()
