"""What clusters there are at first, and how models are made of the trained ones, by a plug-in."""

import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax import extend
from cfljax.config import Train
from tests import play, toy
from tests.packaging.own import forgotten


class ByFirstNumber(extend.Reassigned):
    """Participants whose first parameter is positive are averaged in the last cluster, the others
    in the first."""

    def reassign(self, ask, state, trained, which):
        return jnp.where(trained[:, 0] > 0, state.clusters - 1, 0)


class OfSigns(extend.Clustered):
    """One cluster at first, and others by the trained models."""

    clusters = 3
    average = "uniform"
    first_clusters = extend.OneCluster()
    merging = ByFirstNumber()


class OfGroups(extend.Clustered):
    """The true groups."""

    first_clusters = extend.TrueGroups()


@pytest.fixture(scope="module", autouse=True)
def registered():
    with forgotten():
        cfljax.register_method("signs")(OfSigns)
        cfljax.register_method("groups")(OfGroups)
        yield


def test_participants_are_averaged_where_the_server_puts_them():
    federation = toy.federation("label_permutation", clients=8, seed=2)
    out = play.rounds("signs", federation, 1, 8)
    assert out.states[0].active.tolist() == [True, False, False]
    assert (np.asarray(out.states[0].labels) == 0).all()
    alone = play.rounds("local", federation, 1, 8)
    trained = alone.models()[:8]
    positive = trained[:, 0] > 0
    assert 0 < positive.sum() < 8
    assert out.states[1].active.tolist() == [True, False, True]
    assert np.array_equal(out.states[1].labels, np.where(positive, 2, 0))
    assert np.allclose(out.models()[2], trained[positive].mean(axis=0), atol=1e-6)
    assert np.allclose(out.models()[0], trained[~positive].mean(axis=0), atol=1e-6)


def test_what_needs_kept_models_or_bounds_is_refused():
    refused = OfSigns().refuse(Train())
    for option in ("server", "parts", "asynchronous", "privacy.noise"):
        assert option in refused, option
    assert "trained" in OfSigns().fixed_downloads
    assert not OfGroups().merging.without and not OfGroups().fixed_downloads


def test_true_groups_are_the_clusters_and_must_be_known():
    federation = toy.federation("label_permutation", clients=8, seed=2)
    out, oracle = (play.rounds(name, federation, 2, 5) for name in ("groups", "oracle"))
    assert np.array_equal(out.labels(), federation.group)
    assert np.array_equal(out.models(), oracle.models())
    with pytest.raises(cfljax.SpecError, match="needs the true group of every client"):
        play.rounds("groups", toy.federation("dirichlet", clients=8, alpha=0.5, seed=2), 1)
