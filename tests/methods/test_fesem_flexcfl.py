"""FeSEM as FedGroup's program has it against a plain loop over clients."""

import numpy as np
import pytest

from tests import play, toy
from tests.methods.eight_clients import close, federation
from tests.often import rarely
from tests.reference import plain
from tests.reference.fesem import fesem, starts

WORK = {"epochs": 2, "batch": 5}


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
