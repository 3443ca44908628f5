"""FedPer and LG-FedAvg, which keep the head or the body at home, against a plain numpy program."""

import numpy as np
import pytest

from cfljax.local.rates import at_round
from tests import play
from tests.methods.parts import HEAD, MODEL, NET, PARTICIPANTS, ROUNDS, SEED, kinds, starts
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


@pytest.mark.parametrize("way", [{}, rarely({"batch": "full"}), rarely({"sequential": False})])
def test_the_head_of_fedper_has_its_rate_which_falls_with_the_bodys(way):
    """On Gram matrices."""
    out = play.rounds(
        "fedper", federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL, work=way, head_lr=0.3
    )
    clients, home = plain.Clients(federation()), kinds({"head": "client"})
    how = {"lr": np.where(HEAD, 0.3, 0.1), "batch": way.get("batch", 5), "assign": [0] * 7}
    wanted, own, _ = parts.run(
        NET, clients, starts(1), SEED, ROUNDS, PARTICIPANTS, home, "samples", **how
    )
    assert np.abs(out.models() - np.where(home == "client", own, wanted[0])).max() < 1e-5
    falling = at_round({"lr": 0.1, "head_lr": 0.3, "lr_decay": 0.5}, np.int32(2))
    assert (falling["lr"], falling["head_lr"]) == pytest.approx((0.025, 0.075))
