"""pFedMe against a plain numpy program, and what it refuses."""

import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import toy
from tests.methods.own_steps import NET, PARTICIPANTS, ROUNDS, SEED, global_model, play_on
from tests.methods.ways import ways
from tests.play import seven_clients as federation
from tests.reference import pfedme

SHORT = {"lam": 3.0, "eta": 0.1, "beta": 1.5}


@ways
def test_pfedme_follows_the_plain_program(way):
    out = play_on("pfedme", way, SHORT, inner_steps=3)
    w, personal = pfedme.run(
        NET,
        federation(),
        toy.start(SEED),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        **SHORT,
        inner_steps=3,
        **way,
    )
    assert np.abs(global_model(out)[0] - w).max() < 1e-5
    drawn = np.asarray(out.states[-1].drawn)[:, None]
    assert np.abs(out.models() - np.where(drawn, personal, w)).max() < 1e-5


@pytest.mark.parametrize("table", [{"optimizer": "adam"}, {"momentum": 0.9}, {"weight_decay": 0.1}])
def test_pfedme_refuses_further_terms(table):
    with pytest.raises(SpecError, match=next(iter(table))):
        METHODS.check("pfedme", {}, "m").check_train("method.pfedme", Train(**table))
