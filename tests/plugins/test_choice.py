"""How participants get their cluster by a rule of a plug-in, and what follows from it."""

import jax.numpy as jnp
import pytest

import cfljax
from cfljax import extend
from cfljax.config import Train
from tests import play, toy
from tests.packaging.own import forgotten


class Alternating(extend.Choice):
    """Of each client the next cluster in each round."""

    def choose(self, method, ask, state):
        return (ask.cohort.ids + ask.cohort.round) % state.clusters


class LastOne(extend.ByScore):
    """The last cluster for all, whatever their losses are."""

    def choose(self, method, ask, state):
        return jnp.full_like(ask.cohort.ids, state.clusters - 1)


class Three(extend.Clustered):
    clusters = 3


class OfAlternating(Three):
    """Of three clusters the next one in each round."""

    choice = Alternating()


class OfLast(Three):
    """Of three clusters the last one."""

    choice = LastOne()


class OfLoss(Three):
    """Of three clusters the one with the least loss."""

    choice = extend.ByScore()


class OfServer(Three):
    """Of three clusters the first one, by a score that the server knows."""

    choice = extend.ByServer()

    def score(self, ask, state):
        clusters = jnp.arange(state.clusters, dtype=jnp.float32)
        return jnp.tile(clusters[:, None], (1, ask.cohort.ids.shape[0]))


class OfPrepared(Three):
    """Of three clusters the second one, which is given before the training."""

    choice = extend.Prepared()

    def prepare(self, ask, state):
        labels = ask.cohort.write(state.labels, jnp.ones_like(ask.cohort.ids))
        return state._replace(labels=labels)


RECIPES = {
    "alternating": OfAlternating,
    "last": OfLast,
    "loss": OfLoss,
    "server": OfServer,
    "prepared": OfPrepared,
}
"""Methods, by the names under which this module registers them."""


@pytest.fixture(scope="module", autouse=True)
def registered():
    with forgotten():
        for name, recipe in RECIPES.items():
            cfljax.register_method(name)(recipe)
        yield


def play_two_rounds(name, participants=5, work=None):
    federation = toy.federation("label_permutation", clients=8, seed=2)
    return play.rounds(name, federation, 2, participants, work=work)


def test_a_choice_of_one_s_own_gives_the_clusters():
    out = play_two_rounds("alternating", participants=8)
    for t in (1, 2):
        assert out.labels(t).tolist() == [(client + t - 1) % 3 for client in range(8)]


@pytest.mark.parametrize("gram", [0, 4096])
def test_a_choice_by_score_may_be_overridden_where_losses_are_computed_in_training(gram):
    """On Gram matrices participants choose while they train, but by plain losses only."""
    out = play_two_rounds("last", work={"epochs": 1, "batch": 5, "gram": gram})
    assert set(out.labels()) == {-1, 2}


@pytest.mark.parametrize(("name", "down", "label"), [("server", 1, 0), ("prepared", 1, 1)])
def test_no_models_are_sent_for_a_choice_that_the_server_makes(name, down, label):
    out = play_two_rounds(name)
    assert {int(info.traffic.vectors_down) for info in out.infos} == {5 * down}
    assert set(out.labels()) == {-1, label}


def test_all_models_are_sent_for_a_choice_by_loss():
    out = play_two_rounds("loss")
    assert {int(info.traffic.vectors_down) for info in out.infos} == {5 * 3}


def test_what_a_choice_excludes_and_reveals_is_the_method_s():
    facts = {
        name: (
            "asynchronous" in recipe().without,
            "privacy.choice" in recipe().without,
            recipe().moved_by_server,
            recipe().averaged,
            recipe().reveals,
            recipe().shared_copies_downloaded,
        )
        for name, recipe in RECIPES.items()
    }
    kept = ("models", ("models",))
    by_updates = "the clustering by updates"
    assert facts == {
        "alternating": (False, True, *kept, by_updates, 1),
        "last": (False, False, *kept, "the choice by loss", 3),
        "loss": (False, False, *kept, "the choice by loss", 3),
        "server": (False, True, *kept, by_updates, 1),
        "prepared": (True, True, "", (), by_updates, 1),
    }
    for recipe in RECIPES.values():
        recipe().check_run("method.mine", Train(), None, None)
