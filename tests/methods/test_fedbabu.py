"""FedBABU against a plain numpy program."""

import numpy as np
import pytest

from tests import play
from tests.methods.parts import FROZEN, HEAD, MODEL, NET, PARTICIPANTS, ROUNDS, SEED, starts
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import parts, plain


@pytest.mark.parametrize("average", ["samples", rarely("uniform")])
def test_fedbabu_follows_the_plain_program(average):
    out = play.rounds(
        "fedbabu", federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL, average=average
    )
    clients = plain.Clients(federation())
    wanted, _, _ = parts.run(
        NET, clients, starts(1), SEED, ROUNDS, PARTICIPANTS, FROZEN, average, assign=[0] * 7
    )
    assert np.abs(out.models() - wanted).max() < 1e-5 and np.array_equal(
        out.models()[:, HEAD], out.models(0)[:, HEAD]
    )
