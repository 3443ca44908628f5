"""FedAvg against a plain numpy program, and what every curve has."""

import numpy as np
import pytest

from tests import toy
from tests.methods.baselines import PARTICIPANTS, WORK, assert_is_plain, engine, federation
from tests.often import rarely
from tests.reference import fedavg as reference
from tests.reference import plain

UNIFORM = {"average": "uniform", "lr_decay": 0.7, "momentum": 0.5}
FACTORS = (0.5, 1.0, 0.3)
LAST_STAYS = (*FACTORS, 0.3)
"""What multiplies the rate in four rounds, of a schedule of three."""


@pytest.mark.parametrize(
    ("hyper", "options", "local"),
    [
        rarely({}, {}, {}),
        ({"lr_decay": 0.7, "momentum": 0.5}, {"average": "uniform"}, UNIFORM),
        ({"lr_factors": FACTORS}, {}, {"factors": LAST_STAYS}),
    ],
    ids=["fedavg", "uniform, with momentum and decay", "with a schedule"],
)
def test_one_global_model(hyper, options, local):
    assert_is_plain("fedavg", hyper, options, local)


def test_discrepancy_is_the_distance_to_the_model_after_aggregation():
    output = engine("fedavg")
    net, clients = plain.Net(6, 4), plain.Clients(federation())
    history = reference.fedavg(net, clients, toy.start(), 1, PARTICIPANTS, 0.1, **WORK)
    key = plain.round_key(0, 0)
    ends = [
        plain.fit(net, toy.start(), clients.train[c], plain.local_key(key, c), 0.1, **WORK)[0]
        for c in plain.cohort(0, 0, clients.uid, PARTICIPANTS)
    ]
    want = np.mean([np.linalg.norm(w - history[0][0]) for w in ends])
    assert np.isclose(output.history["discrepancy"][1], want, rtol=1e-4)


def test_seeds_differ_and_repeat():
    a, b, again = (engine("fedavg", seed=s) for s in (1, 2, 1))
    assert np.array_equal(a.models, again.models)
    assert not np.allclose(a.models, b.models)
