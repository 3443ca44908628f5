"""Who takes part in a round by a rule of a plug-in, which the page on own methods has."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import extend, keys
from cfljax.config import plugins
from cfljax.types import Cohort
from tests import blocks, play, toy
from tests.reference import plain

PAGE = Path(__file__).parents[2] / "docs" / "own.md"


def uniform(key, purpose, uid):
    return np.asarray(keys.scores(key, purpose, uid) >> 8) / 2**24


def test_the_draw_of_the_page_follows_a_plain_loop(tmp_path):
    """Six of ten clients are drawn by the losses that they have sent, the largest log(u) / loss
    first; and each sends one number more than its update."""
    file = tmp_path / "my_draw.py"
    file.write_text(next(b.text for b in blocks.blocks(PAGE) if b.title == file.name))
    plugins.load([str(file)])
    federation = toy.federation("label_permutation", groups=2, clients=10, seed=2)
    out = play.rounds("by_loss", federation, 3, 6, 2)

    known, uid = np.ones(10), np.asarray(federation.uid)
    chosen = []
    for t, info in enumerate(out.infos):
        luck = uniform(plain.round_key(2, t), "by loss", uid)
        drawn = np.argsort(-np.log(luck) / known)[:6]
        chosen.append(set(drawn))
        after = np.asarray(out.states[t + 1].memory)
        assert set(np.flatnonzero(after != known)) == chosen[-1]
        # All have equally many samples
        np.testing.assert_allclose(after[drawn].mean(), info.train_loss, rtol=1e-5)
        assert int(info.traffic.floats_up) == int(info.traffic.vectors_up) == 6
        known = after
    assert chosen[0] != chosen[1]


def test_the_highest_scores_are_drawn_of_clients_that_can_train():
    """NaN is the lowest score, a client that is not there has none, and of equal ones the identity
    decides."""
    clients = np.arange(6, dtype=np.int32)

    @jax.jit
    def draw(uid, trains, arrive, scores):
        federation = SimpleNamespace(clients=6, uid=uid, trains=trains, arrive=arrive)
        cohort = Cohort(jnp.zeros(3, jnp.int32), jnp.ones(3, bool), jnp.ones(3), jnp.int32(1))
        found = extend.draw_highest(keys.root(3), federation, scores, cohort, {})
        return found.ids, found.mask, found.round

    def drawn(scores, uid=clients, trains=(1,) * 6, arrive=(0,) * 6):
        given = (np.array(trains, bool), np.array(arrive, np.int32), np.float32(scores))
        ids, mask, number = draw(uid, *given)
        assert number == 1
        return np.asarray(ids)[np.asarray(mask)].tolist()

    assert drawn([3, 9, 5, 0, 7, 1]) == [1, 4, 2]
    assert drawn([3, np.nan, 5, -np.inf, np.nan, 1]) == [2, 0, 5]
    assert drawn([3, 9, 5, 0, 7, 1], trains=(1, 0, 1, 1, 1, 1), arrive=(1, 0, 0, 0, 2, 0)) == [
        2,
        0,
        5,
    ]
    # Only two can train, one of which has no score to speak of
    assert sorted(drawn([-np.inf, 1, 2, 3, 4, 5], trains=(1, 1, 0, 0, 0, 0))) == [0, 1]
    equal = drawn([1] * 6)
    assert sorted(5 - np.array(drawn([1] * 6, uid=clients[::-1].copy()))) == sorted(equal)


def test_a_draw_of_one_s_own_hides_nobody_and_is_no_asynchronous_server_s():
    class Own(extend.Draw):
        def do_round(self, train, key, state, federation, cohort, hyper):
            return train(cohort)

    class Checked(extend.Draw):
        def check(self, where, train, data):
            pass

    assert Own().asynchronous_unsupported and Own().releases(2, 5) == (0, 10)
    for draw in (extend.Draw(), extend.Everybody(), Checked()):
        assert not draw.asynchronous_unsupported and draw.releases(2, 5) == (10, 0)
    assert extend.PerCluster(3).releases(1, 5) == (0, 5)
    assert extend.WarmUp(2).releases(1, 5) == (3, 2)
    assert extend.WarmUp(2).releases(2, 5) == (6, 4)
    assert (
        extend.PerCluster(3).asynchronous_unsupported and extend.WarmUp(2).asynchronous_unsupported
    )
