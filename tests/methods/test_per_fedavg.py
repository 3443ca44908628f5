"""Per-FedAvg against a plain numpy program, and what it is scored with."""

import numpy as np
import pytest

from tests import play, toy
from tests.methods.own_steps import NET, PARTICIPANTS, ROUNDS, SEED, adapted, global_model, play_on
from tests.methods.ways import ways
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import per_fedavg, plain


@ways
@pytest.mark.parametrize("hessian", [rarely(False), True])
def test_per_fedavg_follows_the_plain_program(way, hessian):
    out = play_on("per_fedavg", way, {"alpha": 0.4}, hessian=hessian)
    w, own = per_fedavg.run(
        NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, 0.4, hessian, **way
    )
    assert np.abs(global_model(out)[0] - w).max() < 1e-5
    assert np.abs(adapted(out, 0.4) - own).max() < 1e-5


def test_per_fedavg_is_scored_after_one_own_step():
    (out,) = play.batch("per_fedavg", federation(), ROUNDS, PARTICIPANTS, [SEED], [{"alpha": 0.4}])
    w, own = per_fedavg.run(
        NET,
        federation(),
        toy.start(SEED),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        0.4,
        False,
        batch=5,
        epochs=1,
    )
    clients = plain.Clients(federation())
    assert out.history["accuracy"][-1] == pytest.approx(plain.accuracy(NET, clients, own, range(7)))
    assert out.diag["accuracy_global"][-1] == pytest.approx(
        plain.accuracy(NET, clients, [w], [0] * 7)
    )
    assert out.history["accuracy"][-1] != out.diag["accuracy_global"][-1]
