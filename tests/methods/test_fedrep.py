"""FedRep against a plain numpy program, and the optimiser after the head's turn."""

import numpy as np
import pytest

from tests import play
from tests.methods.parts import HEAD, MODEL, NET, PARTICIPANTS, ROUNDS, SEED, kinds, starts
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import parts, plain


@pytest.mark.parametrize("epochs", [rarely(1), 2])
def test_fedrep_follows_the_plain_program(epochs):
    work = {"epochs": epochs}
    out = play.rounds(
        "fedrep", federation(), ROUNDS, PARTICIPANTS, SEED, model=MODEL, work=work, head_epochs=2
    )
    clients, home = plain.Clients(federation()), kinds({"head": "client"})
    turns = {"epochs": epochs, "alternate": (2, HEAD)}
    wanted, own, _ = parts.run(
        NET,
        clients,
        starts(1),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        home,
        "uniform",
        assign=[0] * 7,
        **turns,
    )
    assert np.abs(out.models() - np.where(home == "client", own, wanted[0])).max() < 1e-5


@pytest.mark.parametrize(
    "way",
    [{}, rarely({"sequential": False}), rarely({"batch": "full"}), rarely({"head_lr": 0.05})],
)
def test_the_body_begins_with_a_new_optimiser_after_the_heads_turn(way):
    rate = {key: way[key] for key in way if key == "head_lr"}
    work = {"epochs": 2, "optimizer": "adam", "arguments": (("eps", 1e-3),)}
    work |= {key: way[key] for key in way if key not in rate}
    out = play.rounds(
        "fedrep",
        federation(),
        ROUNDS,
        PARTICIPANTS,
        SEED,
        model=MODEL,
        work=work,
        head_epochs=2,
        lr=0.02,
        **rate,
    )
    clients, home = plain.Clients(federation()), kinds({"head": "client"})
    turns = {
        "epochs": 2,
        "alternate": (2, HEAD),
        "adam": True,
        "lr": np.where(HEAD, rate.get("head_lr", 0.02), 0.02),
        "batch": way.get("batch", 5),
    }
    wanted, own, _ = parts.run(
        NET,
        clients,
        starts(1),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        home,
        "uniform",
        assign=[0] * 7,
        **turns,
    )
    assert np.abs(out.models() - np.where(home == "client", own, wanted[0])).max() < 5e-4
