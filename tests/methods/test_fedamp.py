"""FedAMP against a plain numpy program, its identities and the weights of its mixtures."""

import numpy as np
import pytest

from tests import play, toy
from tests.methods.mixtures import assert_all_have_trained, own_and_first
from tests.play import seven_clients as federation
from tests.reference import fedamp, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)

AMP = {"alpha": 0.4, "sigma": 2.0, "lam": 0.5}


@pytest.mark.parametrize("changed", [{}, {"alpha": 9.0}, {"sigma": 0.05}, {"lam": 0.0}])
def test_fedamp_follows_the_plain_program(changed):
    out = play.rounds("fedamp", federation(), ROUNDS, PARTICIPANTS, SEED, hyper=AMP | changed)
    wanted = fedamp.run(
        NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, **(AMP | changed)
    )
    assert np.abs(out.models() - wanted).max() < 1e-5


def test_fedamp_without_a_pull_is_local_training_and_with_one_is_not():
    drawn, local = (
        play.rounds(n, federation(), ROUNDS, None, SEED, hyper={"lam": 0.0})
        for n in ("fedamp", "local")
    )
    assert np.allclose(drawn.models(), local.models(), atol=1e-6)
    pulled = play.rounds("fedamp", federation(), ROUNDS, None, SEED, hyper=AMP)
    assert np.abs(pulled.models() - local.models()).max() > 1e-3


def test_fedamp_keeps_the_weights_of_its_next_mixtures():
    (output,) = play.on_nine("fedamp", alpha=0.3, sigma=0.7)
    assert_all_have_trained(output)
    own, _ = own_and_first(output)
    wanted = 0.3 / 0.7 * np.exp(-((own[:, None] - own[None]) ** 2).sum(axis=2) / 0.7)
    np.fill_diagonal(wanted, 0.0)
    wanted /= np.maximum(wanted.sum(axis=1, keepdims=True), 1.0)
    wanted += np.diag(1 - wanted.sum(axis=1))
    assert np.abs(output.diag["mixture_of_clients"][-1] - wanted).max() < 1e-5
