"""APFL against a plain numpy program, and its identities."""

import numpy as np
import pytest

from tests import toy
from tests.methods.own_steps import NET, PARTICIPANTS, ROUNDS, SEED, global_model, play_on
from tests.methods.ways import ways
from tests.often import rarely
from tests.play import seven_clients as federation
from tests.reference import apfl


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
    assert np.abs(state.w[0] - w).max() < 1e-5 and np.abs(state.rows[:, :-1] - v).max() < 1e-5
    assert np.abs(state.rows[:, -1] - share).max() < 1e-5
    assert (np.abs(share - 0.3).max() > 1e-3) == (adapt != "never")
    mixed = np.where(
        np.asarray(state.drawn)[:, None], share[:, None] * v + (1 - share[:, None]) * w, w
    )
    assert np.abs(out.models() - mixed).max() < 1e-5


def test_apfl_is_fedavg_and_with_a_full_share_also_local_training():
    average, local = play_on("fedavg", average="uniform"), play_on("local")
    alone, together = (play_on("apfl", alpha=alpha, adapt="never") for alpha in (1.0, 0.0))
    assert np.allclose(global_model(alone), average.models(), atol=1e-6)
    drawn = np.asarray(alone.states[-1].drawn)
    assert drawn.any() and np.allclose(alone.models()[drawn], local.models()[drawn], atol=1e-6)
    assert np.allclose(together.models(), average.models(), atol=1e-6)
    assert [tuple(i.traffic) for i in alone.infos] == [tuple(i.traffic) for i in average.infos]
