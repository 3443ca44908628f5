"""FedAvg inside the true groups against a plain numpy program."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from tests import toy
from tests.methods.baselines import PARTICIPANTS, ROUNDS, WORK, engine, federation
from tests.reference import fedavg as reference
from tests.reference import plain


def test_oracle_is_fedavg_inside_the_true_groups():
    output = engine("oracle")
    net, clients = plain.Net(6, 4), plain.Clients(federation())
    history = reference.fedavg(
        net, clients, toy.start(), ROUNDS, PARTICIPANTS, 0.1, **WORK, labels=clients.group
    )
    assert np.allclose(output.models, history[-1], atol=1e-5)
    assert np.array_equal(output.labels[-1], clients.group)
    assert output.history["ari"][-1] == 1 and output.history["clusters"][-1] == 2


def test_oracle_needs_true_groups():
    with pytest.raises(SpecError, match="true group"):
        engine("oracle", toy.federation("iid", clients=3))
