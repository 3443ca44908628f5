"""Methods with a mixture of models for each client (FedEM, FedRC, FedSoft)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.round.soft import MixtureState, Soft, method_of
from tests import toy
from tests.methods.soft import WORK, federation, run
from tests.often import rarely


@dataclasses.dataclass(frozen=True)
class OnceNotANumber(Soft):
    """Shares of which those of the first model are no numbers."""

    def share(self, log_mixture, losses, axis):
        return jnp.ones_like(losses).at[0].set(jnp.nan)


def test_a_mixture_with_a_share_that_is_no_number_is_not_taken():
    solver = toy.solver(toy.model(), **WORK)
    method = method_of("own", OnceNotANumber(), solver.model, solver)
    models = jnp.zeros((3, solver.model.size))
    state = MixtureState(models, jnp.full((8, 3), 1 / 3), jnp.zeros(8, bool))
    assert np.array_equal(method.mixture(state, federation(), {}), state.mixture)


@pytest.mark.parametrize("name", ["fedem", "fedrc", "fedsoft"])
def test_clients_that_have_not_arrived_change_nothing_but_what_they_are_scored_by(name):
    late = toy.replace(federation(), arrive=jnp.array([0] * 6 + [2, 99], jnp.int32))
    train = late.train
    few = toy.replace(
        train, start=train.start.at[6:].set(train.start[0]), count=train.count.at[6:].set(3)
    )
    other = toy.replace(late, train=few)
    one, two = (run(name, each, rounds=2, clusters=3) for each in (late, other))
    for a, b in zip(one.infos, two.infos, strict=True):
        assert all(
            np.array_equal(x, y)
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        )
    first = late.arrive == 0
    rows = first if name == "fedsoft" else slice(None)  # models of clients, or of clusters
    assert np.array_equal(one.models()[rows], two.models()[rows])
    if name != "fedsoft":
        found = [
            np.asarray(each.method.mixture(each.states[-1], fed, {}))
            for each, fed in ((one, late), (two, other))
        ]
        assert (
            np.array_equal(found[0][first], found[1][first])
            and np.abs(found[0][7] - found[1][7]).max() > 1e-3
        )
        assert np.abs(found[0].sum(axis=1) - 1).max() < 1e-5
    later = [run(name, each, rounds=5, clusters=3).models()[rows] for each in (late, other)]
    assert not np.array_equal(*later)


@pytest.mark.parametrize("name", ["fedem", rarely("fedrc"), rarely("fedsoft")])
def test_the_record_has_the_mixtures_by_which_groups_can_be_told(name):
    data = {
        "name": "blobs",
        "samples": 800,
        "partition": "label_permutation",
        "groups": 2,
        "clients": 10,
        "samples_per_client": 50,
    }
    made = cfljax.run(
        name,
        clusters=2,
        data=data,
        model="mclr",
        rounds=20,
        lr=0.3,
        epochs=3,
        seed=1,
        participation=4,
    )
    mixture = made.diag[f"{name}/mixture"]
    assert made.summary["accuracy_last"] > 0.9
    assert mixture.shape == (10, 2) and np.abs(mixture.sum(axis=1) - 1).max() < 1e-5
    most = mixture.argmax(axis=1)
    assert (most[:5] == most[0]).all() and (most[5:] == 1 - most[0]).all()
