"""FeSEM against a plain program beside its authors', and how it begins."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.local.parts import divide_model
from tests import play, toy
from tests.methods.eight_clients import federation
from tests.often import rarely
from tests.reference import plain
from tests.reference.fesem import Kmeans, authors, random_points, starts

WORK = {"epochs": 2, "batch": 5}
HIDDEN = 7
LAST = np.arange(6 * HIDDEN + HIDDEN + 4, 6 * HIDDEN + HIDDEN + 4 + HIDDEN * 4)
"""Where the last kernel lies in a model of 6, HIDDEN and 4 numbers."""


@pytest.mark.parametrize(("participants", "clusters", "compare", "columns", "seed", "anew"), [
    (12, 3, "last", LAST, 0, True), rarely(12, 2, "last", LAST, 1, False), rarely(4, 3, "last", LAST, 0, True),
    rarely(12, 3, "head", np.arange(LAST[0] - 4, LAST[-1] + 1), 0, False), rarely(12, 3, "dense_0", np.arange(LAST[0] - 4), 0, True),
    rarely(12, 3, "whole", np.arange(LAST[-1] + 1), 0, True),
])  # fmt: skip
def test_agrees_with_a_plain_program_of_the_authors(
    participants, clusters, compare, columns, seed, anew
):
    whole = toy.federation("label_permutation", clients=12, groups=3, seed=4)
    options = {"clusters": clusters, "compare": compare, "model": toy.model(HIDDEN)}
    states, infos, method = play.rounds(
        "fesem", whole, 8, participants, seed, lr=0.3, work=WORK, **options
    )
    w0, _ = starts(toy.model(HIDDEN).init, seed, clusters)
    net, clients = plain.Net(6, 4, HIDDEN), plain.Clients(whole)
    wanted, own, begun = authors(
        net, clients, columns, w0, seed, 8, participants, clusters, 0.3, 5, 2
    )
    for state, (centres, labels) in zip(states[1:], wanted, strict=True):
        np.testing.assert_array_equal(state.labels, labels)
        np.testing.assert_allclose(state.models, centres, atol=1e-5 * np.abs(centres).max())
    for mine, theirs in zip(np.asarray(states[-1].memory.own), own, strict=True):
        assert (
            np.isnan(mine).all()
            if theirs is None
            else np.allclose(mine, theirs[columns], atol=1e-5)
        )
    assert bool(begun) == anew  # both ways of a step are met
    assert [[int(n) for n in info.traffic] for info in infos[:2]] == [
        [participants] * 2 + [0, 0]
    ] * 2
    np.testing.assert_array_equal(method.score(states[-1], whole, {}), states[-1].labels)


def test_first_memberships_are_five_steps_of_k_means():
    """Of forty clients; fewer are settled after four."""
    whole, seed = toy.federation("label_permutation", clients=40, groups=2), 4
    options = {"clusters": 3, "compare": "last", "model": toy.model(HIDDEN)}
    states, _, _ = play.rounds("fesem", whole, 0, seed=seed, work=WORK, **options)
    points, order = random_points(seed, np.asarray(whole.uid), len(LAST))
    wanted = np.zeros(40, int)
    wanted[order] = Kmeans(3).labels(np.array(points)[order])
    np.testing.assert_array_equal(states[0].labels, wanted)


def test_refuses_to_compare_what_never_reaches_the_server():
    kept = divide_model(toy.model(HIDDEN), [("head", "client")])
    with pytest.raises(
        SpecError, match=r'method.fesem.compare = "last": these weights never reach the server'
    ):
        play.rounds("fesem", federation(), model=toy.model(HIDDEN), work=WORK | {"parts": kept})
