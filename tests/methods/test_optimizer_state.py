"""Optimisers that go on from round to round (`train.optimizer_state`)."""

import jax
import numpy as np
import optax
import pytest

import cfljax
from cfljax import keys
from cfljax.errors import SpecError
from tests import play, toy
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import plain

SEED, ROUNDS, PARTICIPANTS, LR = 5, 4, 5, 0.1
REFUSED = {"ditto", "fedbcd", "fedem", "fedrc", "cfl_mgd", "stocfl", "apfl"}
REFUSED |= {
    "per_fedavg",
    "pfedme",
    "scaffold",
    "fedrep",
    "fedrod",
    "fedgwc",
    "moon",
    "fedala",
    "fedproto",
    "fedpac",
    "fedccfa",
}


def played(name="fedavg", hyper=None, participants=PARTICIPANTS, rounds=ROUNDS, fed=None, **work):
    work = {"batch": 5, "keeps_state": True} | work
    return play.rounds(
        name, fed or federation(), rounds, participants, SEED, LR, work, hyper or {"momentum": 0.9}
    )


@pytest.mark.parametrize(
    "work",
    [{}, {"gram": 256}, *map(rarely, ({"sequential": False}, {"stream": 2}, {"quick": True}))],
    ids=str,
)
def test_momentum_of_fedavg_follows_a_plain_program(work):
    net, clients, w = plain.Net(6, 4), plain.Clients(federation()), toy.start(SEED)
    found, buffers = played(**work), [np.zeros_like(w) for _ in clients.uid]
    for t in range(ROUNDS):
        key, present, models = (
            plain.round_key(SEED, t),
            plain.cohort(SEED, t, clients.uid, PARTICIPANTS),
            [],
        )
        for i in present:
            local = plain.local_key(key, clients.uid[i])
            own, buffers[i] = plain.fit(
                net, w, clients.train[i], local, LR, 5, 1, momentum=0.9, velocity=buffers[i]
            )
            models.append(own)
        w = plain.average(models, clients.size[present])
        np.testing.assert_allclose(found.models(t + 1)[0], w, atol=1e-5)
        kept = np.nan_to_num(np.asarray(found.states[t + 1].stages[0]))
        np.testing.assert_allclose(kept, buffers, atol=1e-5)


def test_adam_of_one_client_that_trains_alone_is_adam_without_rounds():
    fed = toy.federation("quantity", clients=1)
    work = {"batch": "full", "optimizer": "adam", "epochs": 1}
    kept, anew = (
        played("fedavg", {"lr": 0.1}, 1, 5, fed, keeps_state=keeps, **work).models()[0]
        for keeps in (True, False)
    )
    model, optimiser = toy.model(), optax.adam(0.1)
    w = model.init(keys.fold(keys.root(SEED), "model", 0))
    (x, y), state = plain.Clients(fed).train[0], optimiser.init(w)

    @jax.jit
    def step(w, state):
        def loss(w):
            return model.loss(model.forward(model.unravel(w), x.astype(np.float32), None), y).mean()

        moves, state = optimiser.update(jax.grad(loss)(w), state)
        return w + moves, state

    for _ in range(5):
        w, state = step(w, state)
    np.testing.assert_allclose(kept, w, atol=1e-5)
    assert np.abs(kept - anew).max() > 0.01


@pytest.mark.parametrize("name", ["fedavg"])
def test_a_method_keeps_the_states_of_those_who_trained(name):
    options = play.options(name) | ({"local": "update"} if name == "ccs_rfedavg" else {})
    out, plainly = (
        play.rounds(
            name,
            play.nine_clients(),
            2,
            None,
            SEED,
            LR,
            {"batch": 5, "keeps_state": keeps},
            {"momentum": 0.9},
            **options,
        )
        for keeps in (True, False)
    )
    assert np.isfinite(out.states[1].stages[0]).all(axis=1).any()
    assert np.abs(out.models() - plainly.models()).max() > 1e-4


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_whose_clients_do_not_train_once_a_round_refuse(name):
    with pytest.raises(
        SpecError,
        match=f'train.optimizer_state = "client" with method.{name}: .*; leave it out for this '
        "method",
    ):
        cfljax.run(
            name,
            "digits",
            rounds=1,
            train={"optimizer_state": "client", "optimizer": "sgd", "momentum": 0.5},
        )


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({}, "plain SGD has no state; give train.momentum or another train.optimizer"),
        (
            {"momentum": 0.9, "asynchronous": {"buffer": 2}, "clock": {"step_ms": 5}},
            "optimizer_state = .client. with train.asynchronous: .*; leave out one",
        ),
    ],
)
def test_refuses_what_has_no_state_to_keep(train, says):
    with pytest.raises(SpecError, match=says):
        cfljax.run(
            "fedavg",
            "digits",
            {"name": "mlp", "hidden": [8]},
            rounds=1,
            train={"optimizer_state": "client"} | train,
        )


def test_a_run_of_a_spec_keeps_states():
    ways = (
        {},
        {"optimizer_state": "client"},
    )
    runs = [
        cfljax.run("fedavg", "digits", "mclr", rounds=3, train={"momentum": 0.9} | way)
        for way in ways
    ]
    assert not np.allclose(runs[0].models, runs[1].models, atol=1e-4)
