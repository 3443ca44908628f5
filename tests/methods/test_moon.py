"""MOON against a plain numpy program, and without its term FedAvg."""

import numpy as np

from tests import play, toy
from tests.reference import moon as reference
from tests.reference import plain


def test_moon_follows_the_plain_program():
    made, model, numbers = (
        toy.federation("classes", clients=7, classes_per_client=2, seed=4),
        toy.model(7),
        {"mu": 3.0, "tau": 0.4},
    )
    out, without = (
        play.rounds("moon", made, 4, 4, 0, lr=0.2, model=model, **numbers | off)
        for off in ({}, {"mu": 0.0})
    )
    w = reference.moon(
        plain.Net(6, 4, 7), plain.Clients(made), toy.first_model_of(model), 4, 4, 0.2, **numbers
    )
    assert (
        np.abs(out.models()[0] - w).max()
        < 1e-5
        < 1e-3
        < np.abs(out.models() - without.models()).max()
    )
    assert np.allclose(
        without.models(),
        play.rounds("fedavg", made, 4, 4, 0, lr=0.2, model=model).models(),
        atol=1e-6,
    )
