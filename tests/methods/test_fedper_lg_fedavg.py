"""FedPer and LG-FedAvg, which keep the head or the body at home, against a plain numpy program."""

import numpy as np
import pytest

from tests import play
from tests.methods.parts import MODEL, NET, PARTICIPANTS, ROUNDS, SEED, kinds, starts
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import parts, plain


@pytest.mark.parametrize(
    ("name", "table"), [("fedper", {"head": "client"}), rarely("lg_fedavg", {"body": "client"})]
)
def test_fedper_and_lg_fedavg_follow_the_plain_program(name, table):
    out = play.rounds(name, federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL)
    clients = plain.Clients(federation())
    wanted, own, _ = parts.run(
        NET, clients, starts(1), SEED, ROUNDS, PARTICIPANTS, kinds(table), "samples", assign=[0] * 7
    )
    assert np.abs(out.models() - np.where(kinds(table) == "client", own, wanted[0])).max() < 1e-5
    assert out.labels().tolist() == list(range(7))
