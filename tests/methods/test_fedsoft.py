"""FedSoft against a plain numpy program, its draws, its bill and its limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.kernels.choose import select_by_weight
from cfljax.methods import METHODS
from tests import toy
from tests.methods.soft import PARTICIPANTS, ROUNDS, SEED, WORK, federation, run
from tests.often import rarely
from tests.reference import fedsoft, plain

SOFT = {"tau": 2, "start": "own", "lam": 0.5, "selected": 0.4, "floor": 1e-3}
SOFT_CASES = {
    "defaults": {}, "most participants": {"selected": 0.8, "tau": 3}, "from the middle": {"start": "centres", "tau": 1, "lam": 0.1},
    "few, from the middle": {"start": "centres", "selected": 0.4, "floor": 0.2, "lam": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("case", [next(iter(SOFT_CASES)), *map(rarely, list(SOFT_CASES)[1:])])
def test_fedsoft_follows_the_plain_program(case):
    options, net, clients = SOFT | SOFT_CASES[case], plain.Net(6, 4), plain.Clients(federation())
    out = run("fedsoft", clusters=3, **options)
    first, last = out.states[0], out.states[-1]
    wanted = fedsoft.fedsoft(
        net,
        clients,
        first.centres,
        first.rows,
        SEED,
        ROUNDS,
        PARTICIPANTS,
        0.1,
        WORK["batch"],
        WORK["epochs"],
        **options,
    )
    centres, personal, u, trained = wanted
    assert np.abs(last.centres - centres).max() < 1e-5 and np.abs(last.shares - u).max() < 1e-5
    assert np.abs(last.rows - personal).max() < 1e-5
    assert set(np.flatnonzero(last.drawn).tolist()) == trained
    own = np.array([personal[c] if c in trained else centres[u[c].argmax()] for c in range(8)])
    assert np.abs(out.models() - own).max() < 1e-5 and out.labels().tolist() == list(range(8))
    models, of = out.method.also(last)["cluster"]
    assert np.array_equal(models, last.centres) and np.array_equal(of, u.argmax(axis=1))
    assert np.ptp(u, axis=0).max() > 0.2


def test_fedsoft_counts_estimates_and_drawn_participants():
    made = toy.replace(federation(), arrive=jnp.array([0, 0, 0, 0, 0, 0, 1, 9], jnp.int32))
    out = run("fedsoft", made, rounds=4, clusters=3, **SOFT | {"selected": 1.0, "tau": 3})
    sent = [
        [3 * 5 + 3 * asked, 5, 0, 3 * asked] for asked in (6, 1, 0, 7)
    ]  # estimates are made in every third round
    assert [[int(n) for n in info.traffic] for info in out.infos] == sent
    fewer = run("fedsoft", rounds=1, clusters=3, **SOFT | {"selected": 0.2})
    assert int(fewer.infos[0].traffic.vectors_up) in (1, 2, 3)  # one of five for each cluster
    mine = np.asarray(out.method.models(out.states[-1])[0])[7]
    assert np.array_equal(mine, out.states[-1].centres[int(out.states[-1].shares[7].argmax())])


@pytest.mark.parametrize("start", ["own", rarely("centres")])
def test_a_client_of_fedsoft_whose_update_is_broken_has_not_trained(start):
    """It goes on being scored with the cluster model of its largest share, not with w_0."""
    made, options = toy.broken(federation(), 3), SOFT | {"selected": 1.0, "start": start}
    broken = [not np.isfinite(x).all() for x, _ in plain.Clients(made).train]
    out = run("fedsoft", made, clusters=3, **options)
    last, models = out.states[-1], out.models()
    drawn = [plain.cohort(SEED, t, np.arange(8), PARTICIPANTS) for t in range(ROUNDS)]
    assert len(np.unique(drawn)) == 8 and 0 < sum(broken) < 8
    assert np.asarray(last.drawn).tolist() == [not each for each in broken]
    for client in np.flatnonzero(broken):
        assert np.array_equal(models[client], last.centres[int(last.largest[client])])


def test_clusters_draw_by_their_odds_and_by_identity():
    odds = np.array([[4, 2, 1, 1, 0], [1, 1, 1, 1, 9]], np.float32)
    mask, uid = np.array([True, True, True, True, False]), np.array([5, 3, 8, 1, 2], np.int32)
    draw = jax.jit(jax.vmap(select_by_weight, in_axes=(0, None, None, None, None)))
    found = np.asarray(draw(jax.random.split(jax.random.key(0), 4000), odds, mask, uid, 0.25))
    assert (found.sum(axis=2) == 1).all()
    assert np.abs(found[:, 0].mean(axis=0) - np.array([4, 2, 1, 1, 0]) / 8).max() < 0.03
    assert np.abs(found[:, 1].mean(axis=0) - np.array([1, 1, 1, 1, 0]) / 4).max() < 0.03
    key = jax.random.split(jax.random.key(3), 4000)
    turned, again = (
        draw(key, odds[:, ::-1], mask[::-1], uid[::-1], 0.5),
        draw(key, odds, mask, uid, 0.5),
    )
    assert np.array_equal(np.asarray(turned)[..., ::-1], again)


def test_fedsoft_refuses_privacy_of_whole_personal_models():
    train = Train(privacy={"clip": 1.0, "noise": 1.0})
    with pytest.raises(SpecError, match="method.fedsoft: .*start"):
        METHODS.check("fedsoft", {}, "method.fedsoft").check_train("method.fedsoft", train)
    METHODS.check("fedsoft", {"start": "centres"}, "method.fedsoft").check_train(
        "method.fedsoft", train
    )
