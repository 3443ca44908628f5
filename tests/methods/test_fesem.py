import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.local.parts import divide_model
from tests import play, toy
from tests.methods.test_ifca import close, federation
from tests.often import rarely
from tests.reference import plain
from tests.reference.fesem import Kmeans, authors, fesem, random_points, starts

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


@pytest.mark.parametrize("average", [rarely("uniform"), "samples"])
def test_fedgroups_program_agrees_with_a_plain_loop_over_clients(average):
    options = {"clusters": 3, "average": average}
    states, infos, method = play.rounds("fesem_flexcfl", federation(), lr=1.0, work=WORK, **options)
    net, clients = plain.Net(6, 4), plain.Clients(federation())
    w0, centres = starts(toy.model().init, 0, 3)
    wanted, own = fesem(net, clients, centres, w0, 0, 4, 5, 1.0, 5, 2, average)
    close(states, method, wanted)
    np.testing.assert_allclose(states[-1].memory, own, atol=1e-5 * np.abs(own).max())
    labels = np.asarray(states[-1].labels)
    # unseen, and the centre nearest to w_0
    assert len(set(np.asarray(states[1].labels).tolist())) == 2
    assert [[int(n) for n in info.traffic] for info in infos[:2]] == [[5, 5, 0, 0]] * 2
    part = states[1]
    nearest = np.linalg.norm(
        np.asarray(part.memory)[:, None] - np.asarray(part.models)[None], axis=2
    ).argmin(axis=1)
    chosen = np.asarray(method.score(part, federation(), {}))
    np.testing.assert_array_equal(
        chosen, np.where(np.asarray(part.labels) < 0, nearest, part.labels)
    )
    assert (np.asarray(part.labels) < 0).any() and labels.min() >= -1


def test_clients_part_where_those_of_the_plain_program_do():
    """They start alike, at w_0, and join the same centre; that centre moves away, and those who
    come later join another one."""
    whole = toy.federation("classes", clients=12, groups=3, classes_per_client=2, seed=4)
    states, _, method = play.rounds(
        "fesem_flexcfl", whole, rounds=8, participants=3, lr=1.0, work=WORK, clusters=3
    )
    w0, centres = starts(toy.model().init, 0, 3)
    wanted, _ = fesem(
        plain.Net(6, 4), plain.Clients(whole), centres, w0, 0, 8, 3, 1.0, 5, 2, "uniform"
    )
    close(states, method, wanted)
    used = [len(set(labels[labels >= 0])) for _, labels in wanted]
    assert used[0] == 1 and used[-1] == 3


def test_no_centre_is_the_model_that_clients_start_at():
    states, _, _ = play.rounds("fesem_flexcfl", federation(), rounds=0, work=WORK, clusters=3)
    w0, centres = starts(toy.model().init, 0, 3)
    np.testing.assert_allclose(states[0].memory, np.tile(w0, (8, 1)))
    np.testing.assert_allclose(states[0].models, centres)
    apart = np.linalg.norm(np.array(centres)[:, None] - np.array([w0, *centres])[None], axis=2)
    assert (np.sort(apart, axis=1)[:, 1] > 0).all()


def test_a_broken_client_keeps_its_last_weights():
    broken = toy.broken(federation(), 2)
    options = {"clusters": 3, "average": "samples"}
    states, infos, _ = play.rounds("fesem_flexcfl", broken, work=WORK, lr=1.0, **options)
    assert sum(int(info.nonfinite) for info in infos) > 0
    assert np.isfinite(states[-1].models).all() and np.isfinite(states[-1].memory).all()
    assert np.array_equal(states[-1].memory[2], states[0].memory[2])
