"""SCAFFOLD against a plain numpy program, and what becomes of its control variates."""

import numpy as np

from cfljax.config import read_spec
from cfljax.methods import METHODS
from tests import toy
from tests.methods.control import NET, PARTICIPANTS, SEED, alike, federation, play_on
from tests.methods.ways import WAYS, ways
from tests.reference import scaffold


def scaffold_is_plain(out, way, made=None, **numbers):
    found = scaffold.run(
        NET,
        made or federation(),
        toy.start(SEED),
        SEED,
        len(out.infos),
        PARTICIPANTS,
        **numbers,
        **way,
    )
    return alike(out.states[-1], *found)


@ways
def test_scaffold_follows_the_plain_program(way):
    out = play_on("scaffold", way, {"server_lr": 0.8, "weight_decay": 0.05})
    assert scaffold_is_plain(out, way, server_lr=0.8, weight_decay=0.05)


def test_scaffold_weights_clients_and_their_variates_by_samples():
    assert scaffold_is_plain(
        play_on("scaffold", average="samples"), WAYS["batches"], average="samples"
    )


def test_with_momentum_a_variate_is_the_mean_of_the_gradients():
    assert scaffold_is_plain(
        play_on("scaffold", hyper={"momentum": 0.6}), WAYS["batches"], momentum=0.6
    )


def runs(method, **train):
    return read_spec(
        {"data": {"name": "digits", "clients": 20}, "method": [method], "train": train}
    ).runs()


def test_control_variates_are_clipped_and_get_noise_of_their_own_as_updates_do():
    (run,) = runs("scaffold", privacy={"clip": 1.0, "noise": 0.5})
    assert run.options.releases(7) == (14, 0) and METHODS.check("feddyn", {}, "m").releases(7) == (
        7,
        0,
    )
    bound, numbers = 0.01, {"privacy.clip": 0.01, "privacy.noise": 0.0}
    clipped = play_on("scaffold", rounds=1, hyper=numbers).states[1]
    loud = play_on("scaffold", rounds=1, hyper=numbers | {"privacy.noise": 50.0}).states[1]
    of_all = 1 / len(clipped.rows)  # the weight of each client in c
    assert np.linalg.norm(clipped.rows, axis=1).max() <= bound * 1.0001
    assert 0 < np.linalg.norm(clipped.control) <= bound * PARTICIPANTS * of_all * 1.0001
    noise = np.asarray(loud.control - clipped.control), np.asarray(loud.models - clipped.models)
    wanted = 50.0 * bound * np.array([of_all, 1 / PARTICIPANTS])
    assert np.allclose([each.std() for each in noise], wanted, rtol=0.4)
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.6
