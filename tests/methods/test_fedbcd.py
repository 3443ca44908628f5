"""FedBCD against a plain numpy program, its draws and its limits."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.contract.padding import pad
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.methods.fedbcd import draw_steps
from tests import play, toy
from tests.play import seven_clients as federation
from tests.reference import fedbcd, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)

BCD = {"local_batch": 4, "max_steps": 5}
NUMBERS = {
    "rho": 0.7,
    "lr_z": 0.6,
    "local_lr": 0.2,
    "local_momentum": 0.5,
    "local_weight_decay": 0.01,
}


def bcd(federation_=None, **numbers):
    return play.rounds(
        "fedbcd",
        federation_ or federation(),
        ROUNDS,
        PARTICIPANTS,
        SEED,
        hyper=NUMBERS | numbers,
        **BCD,
    )


@pytest.mark.parametrize("numbers", [{}, {"lr_z": 1.0}, {"rho": 0.0, "lr_decay": 0.9}])
def test_fedbcd_follows_the_plain_program(numbers):
    out = bcd(**({"lr_decay": 1.0} | numbers))
    z, personal = fedbcd.run(
        NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, **(NUMBERS | numbers)
    )
    assert np.abs(out.states[-1].z[0] - z).max() < 1e-5
    assert np.abs(out.states[-1].rows - personal).max() < 1e-5
    assert not out.labels().any()


def test_fedbcd_draws_each_number_of_steps_by_identity():
    counts = np.asarray(draw_steps(plain.round_key(0, 0), jnp.arange(2000), 5))
    assert set(counts) == {1, 2, 3, 4, 5} and np.all(np.abs(np.bincount(counts)[1:] - 400) < 90)
    other = np.asarray(draw_steps(plain.round_key(0, 0), jnp.arange(1999, -1, -1), 5))
    assert np.array_equal(counts[::-1], other)


def test_fedbcd_survives_a_broken_client():
    out = bcd(toy.broken(federation(), 1), lr_decay=1.0)
    assert np.isfinite(out.states[-1].z).all() and np.isfinite(out.states[-1].rows).all()
    assert np.array_equal(out.states[-1].rows[1], out.states[0].rows[1])
    assert sum(info.nonfinite for info in out.infos) > 0


def test_fedbcd_is_scored_with_both_of_its_models_and_sends_one_each_way():
    made = federation()
    longer = pad(made, clients=1)  # one that only tests, on what the first does
    test = toy.replace(longer.test, start=longer.test.start.copy(), count=longer.test.count.copy())
    test.start[7], test.count[7] = test.start[0], test.count[0]
    longer = toy.replace(longer, test=test, uid=np.arange(8))
    settings, hyper = {"test_choice": "test_loss"}, {"lr": 9.0} | NUMBERS
    (out,) = play.batch(
        "fedbcd", longer, 2, PARTICIPANTS, [SEED], [hyper], settings=settings, **BCD
    )
    z, personal = fedbcd.run(NET, made, toy.start(SEED), SEED, 2, PARTICIPANTS, **NUMBERS)
    clients = plain.Clients(made)
    assert out.history["accuracy"][-1] == pytest.approx(
        plain.accuracy(NET, plain.Clients(longer), [z], [0] * 8)
    )
    assert out.diag["accuracy_personal"][-1] == pytest.approx(
        plain.accuracy(NET, clients, personal, range(7))
    )
    assert (
        out.history["bytes_up"][-1]
        == out.history["bytes_down"][-1]
        == 4 * 2 * PARTICIPANTS * toy.model().size
    )


def test_fedbcd_refuses_another_optimizer():
    with pytest.raises(SpecError, match="optimizer"):
        METHODS.check("fedbcd", {}, "m").check_train("method.fedbcd", Train(optimizer="adam"))
