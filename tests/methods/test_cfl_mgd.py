"""CFL-MGD against a plain loop over clients, its buffers, and without momentum IFCA."""

import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.local.attacks import Attack
from cfljax.local.compressors.topk import TopK
from cfljax.local.send import Sending
from cfljax.methods import METHODS
from tests import play, toy
from tests.methods.eight_clients import close, federation
from tests.often import rarely
from tests.reference import plain
from tests.reference.cfl_mgd import cfl_mgd

DEFAULTS = {"aggregate": "model", "estimate": "full"}
CASES = {
    "model": {}, "model, mini-batches": {"estimate": "batch"}, "gradient": {"aggregate": "gradient"},
    "gradient of a mini-batch": {"aggregate": "gradient", "estimate": "batch"},
}  # fmt: skip
WORK = {"epochs": 2, "batch": 5}


@pytest.mark.parametrize("case", ["model", *map(rarely, list(CASES)[1:-1]), list(CASES)[-1]])
def test_agrees_with_a_plain_loop_over_clients(case):
    options = DEFAULTS | CASES[case]
    for seed, beta in ((0, 0.9), (1, 0.5)):  # one program
        states, _, method = play.rounds(
            "cfl_mgd", federation(), 4, 5, seed, work=WORK, clusters=3, beta=beta, **options
        )
        net, clients = plain.Net(6, 4), plain.Clients(federation())
        wanted = cfl_mgd(net, clients, states[0].models, seed, 4, 5, 0.1, beta, WORK, **options)
        close(states, method, [w[:2] for w in wanted])
        np.testing.assert_allclose(
            states[-1].velocity, wanted[-1][2], atol=1e-5 * max(1, np.abs(wanted[-1][2]).max())
        )
        assert np.abs(wanted[-1][2]).max() > 0.01


@pytest.mark.parametrize("aggregate", ["model", rarely("gradient")])
def test_without_momentum_it_is_ifca(aggregate):
    options = DEFAULTS | {"aggregate": aggregate}
    states, _, method = play.rounds(
        "cfl_mgd", federation(), work=WORK, clusters=3, beta=0.0, **options
    )
    theirs, _, ifca = play.rounds("ifca", federation(), work=WORK, clusters=3, aggregate=aggregate)
    a, b = play.models_of(method, states), play.models_of(ifca, theirs)
    np.testing.assert_array_equal(a[1], b[1])
    np.testing.assert_allclose(a[0], b[0], rtol=0, atol=2e-7)


def test_the_buffer_goes_down_and_up_too():
    for aggregate, up in (("model", 2), ("gradient", 1)):
        options = DEFAULTS | {"aggregate": aggregate}
        _, infos, _ = play.rounds("cfl_mgd", federation(), 1, work=WORK, clusters=3, **options)
        assert [int(n) for n in infos[0].traffic] == [4 * 5, up * 5, 0, 0]


TOUCHED = {
    "topk": (Sending(TopK(keep=0.2)), {}),
    "sign_flip": (
        Sending(attack=Attack("sign_flip", 0.0)),
        {"attack.share": 0.5, "attack.factor": 2.0},
    ),
    "clip": (Sending(), {"privacy.clip": 0.01}),
}


@pytest.mark.parametrize("way", ["topk", rarely("sign_flip"), rarely("clip")])
def test_of_option_one_a_single_vector_arrives(way):
    """So a cluster moves by −η times its new buffer (eq. 5), whatever becomes of that vector on its
    way."""
    sending, hyper = TOUCHED[way]
    options = DEFAULTS | {"aggregate": "gradient"}
    states, *_ = play.rounds(
        "cfl_mgd",
        federation(),
        work=WORK | {"sending": sending},
        hyper=hyper,
        clusters=2,
        **options,
    )
    moved = 0
    for before, after in zip(states, states[1:], strict=False):
        step = after.models - before.models
        there = np.abs(step).max(axis=1) > 0
        np.testing.assert_allclose(step[there], -0.1 * after.velocity[there], rtol=1e-3, atol=1e-6)
        moved += there.sum()
    assert moved >= len(states) - 1


def test_a_cluster_without_participants_keeps_its_model_and_buffer():
    states, _, _ = play.rounds("cfl_mgd", federation(), work=WORK, clusters=3, **DEFAULTS)
    empty = 0
    for before, after in zip(states[1:-1], states[2:], strict=True):
        for k in range(3):
            if np.array_equal(before.models[k], after.models[k]):
                assert np.array_equal(before.velocity[k], after.velocity[k])
                empty += 1
    assert empty


def test_a_broken_client_breaks_no_buffer():
    broken = toy.broken(federation(), 2)
    for aggregate in ("model", "gradient"):
        states, infos, _ = play.rounds(
            "cfl_mgd", broken, work=WORK, clusters=3, **DEFAULTS | {"aggregate": aggregate}
        )
        assert sum(int(info.nonfinite) for info in infos) > 0
        assert np.isfinite(states[-1].models).all() and np.isfinite(states[-1].velocity).all()


def test_another_momentum_or_optimiser_is_refused():
    config = METHODS.check("cfl_mgd", {}, "method.cfl_mgd")
    for table in ({"momentum": 0.9}, {"optimizer": "adam"}):
        with pytest.raises(SpecError, match=f"train.{next(iter(table))} = .*method.mine"):
            config.check_train("method.mine", Train(**table))
    config.check_train("method.mine", Train())
