"""Methods with a model for each client, near a mixture of all (`Peers`)."""

import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play
from tests.play import seven_clients as federation
from tests.reference import plain

SEED = 5


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph"])
def test_clients_not_drawn_yet_are_scored_with_the_mean_of_those_that_trained(name):
    out = play.rounds(name, federation(), 1, 2, SEED)
    drawn = np.isin(np.arange(7), plain.cohort(SEED, 0, np.arange(7), 2))
    mean = plain.average(out.models()[drawn].astype(float), plain.Clients(federation()).size[drawn])
    assert np.allclose(out.models()[~drawn], mean, atol=1e-6) and not np.allclose(
        out.models()[drawn], mean, atol=1e-3
    )


@pytest.mark.parametrize("name", ["fedamp", "pfedgraph", "fedpac", "gossip"])
@pytest.mark.parametrize("table", [{"privacy": {"clip": 1.0, "noise": 0.5}}, {"robust": "median"}])
def test_noise_and_robust_rules_are_refused(name, table):
    config = METHODS.check(name, {}, "m")
    config.check_train("method", Train())
    config.check_train("method", Train(privacy={"clip": 1.0, "noise": 0.0}))
    with pytest.raises(SpecError, match=r"mixture"):
        config.check_train("method", Train(**table))
