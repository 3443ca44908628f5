"""What the record has of the weights of clients in models, and that only methods whose clients mix
models have any."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.devices import compiled
from cfljax.engine import history, program
from cfljax.engine.settings import MAX_SHARES
from cfljax.methods import METHODS
from tests import play, toy
from tests.often import every, rarely

SOFT = ("fedem", "fedrc", "fedsoft")
OF_OTHERS = ("fedamp", "pfedgraph")


def test_only_methods_whose_clients_mix_models_say_so():
    model = toy.model(4)
    made = {
        name: play.prepared(name, model=play.OPTIONS.get(name, {}).get("model", model)).method
        for name in METHODS
    }
    assert {name for name in made if made[name].mixture or made[name].shares} == {*SOFT, *OF_OTHERS}


@pytest.mark.parametrize("name", every([*SOFT, *OF_OTHERS], often=("fedamp",)))
def test_rows_sum_to_one_and_groups_have_their_clients_mean(name):
    federation = play.nine_clients()
    (output,) = play.on_nine(name)
    each, means = output.diag["mixture_of_clients"], output.diag["mixture_of_groups"]
    models = 9 if name in OF_OTHERS else 2
    assert each.shape == (play.ROUNDS + 1, 9, models) and means.shape == (
        play.ROUNDS + 1,
        2,
        models,
    )
    assert (
        np.allclose(each.sum(axis=2), 1, atol=1e-5)
        and (each >= 0).all()
        and not np.allclose(each[-1], each[1])
    )
    for g in (0, 1):
        assert np.allclose(
            means[:, g], each[:, np.asarray(federation.group) == g].mean(axis=1), atol=1e-6
        )
    if name in SOFT:
        seen = output.labels[-1] >= 0
        assert np.allclose(each[-1][seen], output.diag["mixture"][seen], atol=1e-6)


def counting(method):
    """The method, whose state has weights, too: the number of rounds for each client and model."""
    return method._replace(
        init=lambda *args: (method.init(*args), jnp.zeros((9, 2))),
        round=lambda key, state, *args: (lambda new, info: ((new, state[1] + 1), info))(
            *method.round(key, state[0], *args)
        ),
        models=lambda state: method.models(state[0]),
        shares=lambda state, federation, hyper: state[1],
        extras=lambda state: {},
    )


@pytest.mark.parametrize("quick", [True, rarely(False)])
def test_weights_that_lie_in_the_state_are_those_of_their_round(monkeypatch, quick):
    """An evaluation's are fetched when later rounds have overwritten the state."""
    made = play.prepared("oracle", {"quick": quick})
    monkeypatch.setattr(
        play, "prepared", lambda *_, **__: made._replace(method=counting(made.method))
    )
    compiled.forget()
    (output,) = play.on_nine("oracle", work={"quick": quick}, chunk_rounds=play.ROUNDS)
    compiled.forget()
    assert (output.diag["mixture_of_clients"] == np.arange(play.ROUNDS + 1)[:, None, None]).all()


def test_a_client_that_has_not_trained_has_the_mean_by_samples_of_those_that_have():
    (output,) = play.on_nine("pfedgraph")
    begun, first = output.diag["mixture_of_clients"][:2]
    assert np.array_equal(begun, np.eye(9, dtype=np.float32))
    trained = first.sum(axis=0) > 0
    size = np.where(trained, np.asarray(play.nine_clients().train.count), 0)
    assert trained.sum() == 5 and np.allclose(first[~trained], size / size.sum(), atol=1e-6)


def test_clients_that_never_train_are_in_no_mean_of_a_group():
    clients = history.extract_clients(play.nine_clients())
    trains = np.arange(9) > 1
    shares = np.random.default_rng(0).dirichlet(np.ones(2), (1, 9)).astype(np.float32)
    row = history._average_shares(clients._replace(trains=trains), shares)
    wanted = [shares[:, (clients.group == g) & trains].mean(axis=1) for g in (0, 1)]
    assert np.allclose(row["diag/mixture_of_groups"], np.stack(wanted, axis=1), atol=1e-6)


def test_what_is_kept_is_bounded():
    clients = history.extract_clients(play.nine_clients())
    many = np.full((1, 9, MAX_SHARES // 9 + 1), 0.1, np.float32)
    assert list(history._average_shares(clients, many)) == ["diag/mixture_of_groups"]
    assert history._average_shares(clients._replace(groups=0), many) == {}
    for name, wanted in (("fedamp", True), ("fedsoft", False)):
        method, federation = (
            play.prepared(name, **play.options(name)).method,
            toy.federation("iid", clients=101, source=None),
        )
        state = jax.eval_shape(method.init, jax.random.key(0), federation, {}, {})
        numbers = {key: np.float32(0.1) for key in ("alpha", "sigma", "lam")}
        assert program._are_too_many(method, state, federation, numbers) == wanted


def test_a_result_has_the_mixture_and_a_hard_one_has_none():
    data = {
        "name": "blobs",
        "samples": 300,
        "features": 6,
        "classes": 4,
        "partition": "iid",
        "clients": 9,
    }
    soft, hard = (cfljax.run(name, data, rounds=2) for name in ("fedem", "ifca"))
    assert not [name for name in hard.diag if name.startswith("mixture")]
    assert (
        soft.mixture.shape == (9, 3)
        and soft.mixtures.shape == (3, 9, 3)
        and np.allclose(soft.mixture.sum(axis=1), 1, atol=1e-5)
    )
    assert (
        np.array_equal(soft.mixtures[-1], soft.mixture)
        and hard.mixture is None
        and hard.mixtures is None
    )
