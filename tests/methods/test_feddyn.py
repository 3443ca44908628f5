"""FedDyn against a plain numpy program, and what becomes of its vectors."""

import numpy as np
import pytest

from tests import toy
from tests.methods.control import feddyn_is_plain, federation, play_on
from tests.methods.ways import ways


@ways
@pytest.mark.parametrize("more", [{}, {"momentum": 0.5, "weight_decay": 0.05}], ids=str)
def test_feddyn_follows_the_plain_program(way, more):
    assert feddyn_is_plain(play_on("feddyn", way, {"alpha": 0.4} | more), way, alpha=0.4, **more)


def test_with_noise_nobody_sees_that_every_update_was_broken():
    before, noise = play_on("feddyn").states[-1], {"privacy.clip": 1.0, "privacy.noise": 1e-6}
    after = play_on(
        "feddyn", hyper=noise, made=toy.broken(federation(), *range(7)), rounds=1, state=before
    ).states[-1]
    assert np.allclose(after.models, before.models + before.control, atol=1e-4)
