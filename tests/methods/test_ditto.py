"""Ditto against a plain numpy program, its identities and limits."""

import numpy as np
import pytest

from tests import play, toy
from tests.play import seven_clients as federation
from tests.reference import ditto, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)


def run_ditto(federation_=None, **numbers):
    return play.rounds(
        "ditto",
        federation_ or federation(),
        ROUNDS,
        PARTICIPANTS,
        SEED,
        hyper={"lam": 0.8} | numbers,
    )


def reference(lam):
    return ditto.run(NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, lam)


@pytest.mark.parametrize("lam", [0.0, 0.8, 5.0])
def test_ditto_follows_the_plain_program(lam):
    out, (w, personal) = run_ditto(lam=lam), reference(lam)
    assert np.abs(out.models() - personal).max() < 1e-5
    assert np.abs(out.states[-1].w[0] - w).max() < 1e-5


def test_ditto_is_fedavg_and_without_a_pull_also_local_training():
    out = run_ditto(lam=0.0)
    average, local = (
        play.rounds(name, federation(), ROUNDS, PARTICIPANTS, SEED) for name in ("fedavg", "local")
    )
    assert np.allclose(out.states[-1].w, average.models(), atol=1e-6)
    assert np.allclose(out.models(), local.models(), atol=1e-6)
    assert [tuple(i.traffic) for i in out.infos] == [tuple(i.traffic) for i in average.infos]


def test_ditto_survives_a_broken_client():
    out = run_ditto(toy.broken(federation(), 1))
    assert np.isfinite(out.models()).all() and np.array_equal(
        out.models()[1], out.states[-1].w[0]
    )  # it has no model of its own
    assert sum(info.nonfinite for info in out.infos) > 0


def test_clients_that_were_not_drawn_yet_are_scored_with_the_global_model():
    out = play.rounds("ditto", federation(), 1, 2, SEED, lam=0.8)
    drawn = np.isin(np.arange(7), plain.cohort(SEED, 0, np.arange(7), 2))
    w, personal = ditto.run(NET, federation(), toy.start(SEED), SEED, 1, 2, 0.8)
    assert np.abs(out.models() - np.where(drawn[:, None], personal, w)).max() < 1e-5


def test_clients_without_training_data_are_scored_with_the_global_model():
    out = run_ditto(toy.without_samples(federation(), 3))
    assert out.labels().tolist() == list(range(7)) and np.array_equal(
        out.models()[3], out.states[-1].w[0]
    )
    assert not np.array_equal(out.states[-1].w[0], out.states[0].w[0]) and not np.allclose(
        out.models()[2], out.models()[3]
    )
