"""When clients that come late get the cluster of `begin`, and what they are billed for it."""

import numpy as np
import pytest

import cfljax
from cfljax import extend
from tests import play, toy
from tests.packaging.own import forgotten

ARRIVE = np.array([0, 0, 0, 1, 1, 0, 1, 0], np.int32)
"""Clients 3, 4 and 6 come after the first round."""


class Halves(extend.Clustered):
    """Two clusters of the clients that are there; late ones are to join the second."""

    clusters = 2

    def begin(self, ask):
        clients = np.arange(len(ARRIVE), dtype=np.int32)
        labels = np.where(ARRIVE == 0, clients % 2, -1)
        return extend.InitialClusters(
            np.zeros((2, ask.model.size), np.float32), labels, np.ones_like(clients)
        )


class WhenDrawn(Halves):
    """Late clients join when they take part."""


class WhenHere(Halves):
    """Late clients join when they come."""

    joining = extend.OnArrival()


class WithoutTraining(Halves):
    """Late clients join when they take part, and have not trained for it."""

    joining = extend.Joining(trains=False)


RECIPES = {"drawn": WhenDrawn, "here": WhenHere, "free": WithoutTraining}
"""Methods, by the names under which this module registers them."""


@pytest.fixture(scope="module", autouse=True)
def registered():
    with forgotten():
        for name, recipe in RECIPES.items():
            cfljax.register_method(name)(recipe)
        yield


def play_two_rounds(name):
    """(bool[C] which late clients have joined after two rounds, the vectors that were sent up in
    each round)."""
    federation = toy.replace(toy.federation("label_permutation", clients=8, seed=2), arrive=ARRIVE)
    out = play.rounds(name, federation, 2, 3)
    late = ARRIVE == 1
    assert (out.labels(1)[late] == -1).all()
    return late & (out.labels(2) == 1), [int(info.traffic.vectors_up) for info in out.infos]


# A participant sends an update, and a client that has trained for its cluster one more


def test_late_clients_join_when_they_come_and_their_training_is_billed_then():
    joined, sent = play_two_rounds("here")
    assert joined.sum() == 3 and sent == [3, 3 + 3]


@pytest.mark.parametrize(("name", "trained"), [("drawn", 1), ("free", 0)])
def test_late_clients_join_when_they_take_part_and_their_training_is_billed_then(name, trained):
    joined, sent = play_two_rounds(name)
    assert 0 < joined.sum() < 3 and sent == [3, 3 + trained * joined.sum()]
