"""APFL, pFedMe and Per-FedAvg against plain numpy programs, their identities and limits."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play, toy
from tests.methods.test_control import WAYS, ways
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import apfl, per_fedavg, pfedme, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)
NAMES = ("apfl", "pfedme", "per_fedavg")
SHORT = {"lam": 3.0, "eta": 0.1, "beta": 1.5}


def play_on(name, way=WAYS["batches"], hyper=None, made=None, **options):
    return play.rounds(
        name, made or federation(), ROUNDS, PARTICIPANTS, SEED, hyper=hyper, work=way, **options
    )


def global_model(out, t=-1):
    """f32[1, d] after t rounds."""
    return np.asarray(out.method.also(out.states[t])["global"][0])


def adapted(out, alpha, made=None):
    """The models that Per-FedAvg's clients are scored with."""
    hyper = {"lr": jnp.float32(0.1), "alpha": jnp.float32(alpha)}
    return np.asarray(out.method.adapt(out.states[-1], made or federation(), hyper))


@ways
@pytest.mark.parametrize("adapt", ["round", rarely("never")])
def test_apfl_follows_the_plain_program(way, adapt):
    numbers = {"alpha": 0.3, "adapt": adapt}
    out = play_on("apfl", way, {"weight_decay": 0.02}, **numbers)
    w, v, share = apfl.run(
        NET,
        federation(),
        toy.start(SEED),
        SEED,
        ROUNDS,
        PARTICIPANTS,
        **numbers,
        weight_decay=0.02,
        **way,
    )
    state = out.states[-1]
    assert np.abs(state.w[0] - w).max() < 1e-5 and np.abs(state.home[:, :-1] - v).max() < 1e-5
    assert np.abs(state.home[:, -1] - share).max() < 1e-5
    assert (np.abs(share - 0.3).max() > 1e-3) == (adapt != "never")
    mixed = np.where(
        np.asarray(state.drawn)[:, None], share[:, None] * v + (1 - share[:, None]) * w, w
    )
    assert np.abs(out.models() - mixed).max() < 1e-5


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


@ways
@pytest.mark.parametrize("hessian", [rarely(False), True])
def test_per_fedavg_follows_the_plain_program(way, hessian):
    out = play_on("per_fedavg", way, {"alpha": 0.4}, hessian=hessian)
    w, own = per_fedavg.run(
        NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, 0.4, hessian, **way
    )
    assert np.abs(global_model(out)[0] - w).max() < 1e-5
    assert np.abs(adapted(out, 0.4) - own).max() < 1e-5


def test_apfl_is_fedavg_and_with_a_full_share_also_local_training():
    average, local = play_on("fedavg", average="uniform"), play_on("local")
    alone, together = (play_on("apfl", alpha=alpha, adapt="never") for alpha in (1.0, 0.0))
    assert np.allclose(global_model(alone), average.models(), atol=1e-6)
    drawn = np.asarray(alone.states[-1].drawn)
    assert drawn.any() and np.allclose(alone.models()[drawn], local.models()[drawn], atol=1e-6)
    assert np.allclose(together.models(), average.models(), atol=1e-6)
    assert [tuple(i.traffic) for i in alone.infos] == [tuple(i.traffic) for i in average.infos]


@pytest.mark.parametrize("name", NAMES)
def test_clients_without_samples_are_scored_with_the_global_model(name):
    made = toy.without_samples(federation(), 3)
    out = play_on(name, made=made)
    models = adapted(out, 0.4, made) if name == "per_fedavg" else out.models()
    assert np.array_equal(models[3], global_model(out)[0]) and not np.allclose(models[2], models[3])
    assert not np.array_equal(global_model(out)[0], global_model(out, 0)[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_client_harms_nobody(name):
    made = toy.broken(federation(), 1)
    out = play_on(name, made=made)
    models = adapted(out, 0.4, made) if name == "per_fedavg" else out.models()
    assert np.isfinite(models).all() and np.array_equal(models[1], global_model(out)[0])
    assert sum(int(info.nonfinite) for info in out.infos) > 0


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


LANES, GRAM = {"lanes": 2}, {"gram": 64}


@pytest.mark.parametrize(("name", "plan"), [
    rarely("apfl", LANES), ("pfedme", GRAM), rarely("per_fedavg", GRAM), rarely("per_fedavg", {"stream": 2}), rarely("apfl", GRAM),
    rarely("pfedme", LANES), rarely("per_fedavg", LANES),
], ids=str)  # fmt: skip
def test_other_plans_give_the_same(name, plan):
    usual, other = play_on(name), play_on(name, WAYS["batches"] | plan)
    assert np.allclose(global_model(usual), global_model(other), atol=1e-6)
    assert np.allclose(usual.models(), other.models(), atol=1e-6)


@pytest.mark.parametrize("table", [{"optimizer": "adam"}, {"momentum": 0.9}, {"weight_decay": 0.1}])
def test_pfedme_refuses_further_terms(table):
    with pytest.raises(SpecError, match=next(iter(table))):
        METHODS.check("pfedme", {}, "m").check_train("method.pfedme", Train(**table))
