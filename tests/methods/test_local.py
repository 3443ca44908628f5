"""Training alone against a plain numpy program."""

import numpy as np

from tests import toy
from tests.methods.baselines import PARTICIPANTS, ROUNDS, WORK, engine, federation
from tests.reference import fedavg as reference
from tests.reference import plain


def test_local_training_keeps_to_itself():
    output = engine("local")
    net, clients = plain.Net(6, 4), plain.Clients(federation())
    models = reference.alone(net, clients, toy.start(), ROUNDS, PARTICIPANTS, 0.1, **WORK)
    assert np.allclose(output.models, models, atol=1e-5)
    assert np.isclose(
        output.history["accuracy"][-1], plain.accuracy(net, clients, models, np.arange(7))
    )
    assert output.history["bytes_up"][-1] == 0 and output.history["bytes_down"][-1] == 0
