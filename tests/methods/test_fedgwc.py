"""FedGWC against a plain numpy program, and when it splits."""

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.methods.fedgwc import split
from tests import play, toy
from tests.methods.host_clusters import NET, SEED, check
from tests.often import rarely
from tests.reference import fedgwc as reference
from tests.reference import plain


@pytest.mark.parametrize(("eps", "gamma"), [(1.0, 4.0), rarely(1e-9, 4.0)])
def test_fedgwc_follows_the_plain_program(eps, gamma):
    made = toy.federation("label_permutation", clients=12, groups=2, seed=1)
    clients, w0 = plain.Clients(made), toy.start(SEED).astype(np.float64)
    options = {"clients_per_cluster": 3, "notes": 2, "eps": eps, "gamma": gamma, "max_clusters": 12}
    out = play.rounds("fedgwc", made, 9, None, SEED, **options)
    models, labels, ws = reference.fedgwc(NET, clients, w0, 9, 3, 0.1, 2, gamma, eps, SEED)
    check(out, dict(enumerate(models)), labels)
    for k, w in enumerate(ws):
        own = np.flatnonzero(labels == k)
        assert np.allclose(np.asarray(out.states[-1].memory[0])[np.ix_(own, own)], w, atol=1e-5)
    assert len(models) == (1 if eps < 1 else 4)


@pytest.mark.parametrize(
    ("given", "clients", "train", "said"),
    [
        ({}, {"clients": 20}, {}, []),
        ({}, {"clients": 20, "new_clients": {"share": 0.1}}, {}, ["20 members, and 18 clients"]),
        ({"clients_per_cluster": 6}, {"clients": 11}, {"participation": 0.5}, ["participation with", "12 members"]),
        ({"clients_per_cluster": 5}, {"clients": 11}, {"participation": 3}, ["clients_per_cluster = 5"]),
        ({"name": "ocfl"}, {"clients": 11}, {"participation": 0.5}, ["participation with"]),
        ({"name": "ifca"}, {"clients": 11}, {"participation": 0.5}, []),
    ],
)  # fmt: skip
def test_a_line_says_that_participation_is_not_used_and_that_no_cluster_can_split(
    given, clients, train, said
):
    table = {
        "data": {"name": "digits", "partition": "iid"} | clients,
        "model": "mclr",
        "train": {"rounds": 9} | train,
        "method": {"name": "fedgwc"} | given,
    }
    lines = read_spec(table).warnings
    assert len(lines) == len(said) and all(a in b for a, b in zip(said, lines, strict=True))


def test_fedgwc_tries_no_split_of_fewer_than_twice_the_participants_of_a_cluster():
    """As its program: of 19 members of which ten take part no split is tried, of 20 one is."""
    two = np.kron(np.eye(2), np.ones((10, 10)))
    for members, parts in ((19, 1), (20, 2)):
        w = two[:members, :members] + np.random.default_rng(0).uniform(0, 1e-3, (members, members))
        assert split(w, 1.0, min(int(members / 10) + 1, 5)).max() + 1 == parts
