"""pFedGraph against a plain numpy program, its identities and the weights of its mixtures."""

import numpy as np
import pytest

from tests import play, toy
from tests.methods.mixtures import assert_all_have_trained, own_and_first
from tests.play import seven_clients as federation
from tests.reference import pfedgraph, plain

SEED, ROUNDS, PARTICIPANTS = 5, 4, 5
NET = plain.Net(6, 4)


@pytest.mark.parametrize("lam", [0.05, 0.8, 4.0])
def test_pfedgraph_follows_the_plain_program(lam):
    out = play.rounds("pfedgraph", federation(), ROUNDS, PARTICIPANTS, SEED, hyper={"lam": lam})
    wanted = pfedgraph.run(NET, federation(), toy.start(SEED), SEED, ROUNDS, PARTICIPANTS, lam)
    assert np.abs(out.models() - wanted).max() < 1e-5


def test_pfedgraph_is_fedavg_where_similarity_does_not_count():
    out, average = (
        play.rounds("pfedgraph", federation(), ROUNDS, None, SEED, lam=1e6),
        play.rounds("fedavg", federation(), ROUNDS, None, SEED),
    )
    mean = plain.average(out.models().astype(float), plain.Clients(federation()).size)
    assert np.allclose(mean, average.models()[0], atol=1e-5)


def test_pfedgraph_keeps_the_weights_of_its_next_mixtures():
    """Each row minimises lam · ‖x − p‖² − ⟨x, c⟩ on the simplex: a small step to any corner makes
    it no smaller."""
    (output,) = play.on_nine("pfedgraph", lam=0.8)
    assert_all_have_trained(output)
    own, first = own_and_first(output)
    moved, size = own - first, np.asarray(play.nine_clients().train.count, np.float64)
    unit = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    cosines, p = unit @ unit.T, size / size.sum()
    found = output.diag["mixture_of_clients"][-1].astype(np.float64)
    for x, c in zip(found, cosines, strict=True):
        slope = 2 * 0.8 * (x - p) - c
        assert (slope - slope @ x).min() > -1e-4
