"""FedRC against a plain numpy program, and where it differs from FedEM."""

import jax
import numpy as np
import pytest

import cfljax
from cfljax.methods.fedrc import label_weights
from tests import toy
from tests.methods.soft import PARTICIPANTS, ROUNDS, SEED, WORK, run
from tests.often import rarely
from tests.reference import fedem, fedrc, plain


@pytest.mark.parametrize("made", ["label_permutation", rarely("dirichlet")])
def test_fedrc_follows_the_plain_program(made):
    made = toy.federation(
        made, clients=8, **({"groups": 2} if made == "label_permutation" else {"alpha": 0.5})
    )
    out, net = run("fedrc", made, clusters=3), plain.Net(6, 4)
    start, clients = out.states[0].models, plain.Clients(made)
    models, mixture, sums = fedrc.fedrc(
        net, clients, start, 4, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK
    )
    state = out.states[-1]
    assert np.abs(out.models() - models).max() < 1e-5
    assert np.abs(state.mixture - mixture).max() < 1e-5
    assert np.abs(state.memory - sums).max() < 1e-4
    em = fedem.fedem(net, clients, start, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK)
    assert np.abs(mixture - em[1]).max() > 0.01  # the division matters
    weights = fedrc.weights_of_labels(sums)
    found = np.asarray(out.method.mixture(state, made, {}))
    for c in np.flatnonzero(~np.asarray(state.drawn)):
        pi = np.full(3, 1 / 3)
        for _ in range(10):
            pi = fedrc.shares(net, models, pi, weights, *clients.train[c]).mean(axis=1)
        assert np.abs(found[c] - pi).max() < 1e-5


def test_the_first_round_of_fedrc_is_that_of_fedem():
    """All labels weigh the same at first."""
    rc, em = (run(name, clusters=3, rounds=1) for name in ("fedrc", "fedem"))
    assert np.allclose(rc.models(), em.models(), atol=1e-6)
    assert [int(n) for n in rc.infos[0].traffic] == [15, 15, 5 * 12, 5 * 12]


def test_labels_that_nobody_has_had_weigh_the_same_everywhere():
    weights = jax.jit(label_weights)(np.array([[3, 1, 0], [0, 2, 0]], np.float32))
    assert np.allclose(weights, [[0.75, 0.25, 1 / 3], [1e-6, 1.0, 1 / 3]])


def test_fedrc_does_not_part_clients_by_which_labels_they_have():
    data = {"name": "blobs", "samples": 800, "clients": 10, "partition": "dirichlet", "alpha": 0.3}
    options = {
        "clusters": 2,
        "data": data,
        "model": "mclr",
        "rounds": 30,
        "lr": 0.3,
        "epochs": 2,
        "seed": 1,
    }
    em, rc = (cfljax.run(name, **options).diag[f"{name}/mixture"] for name in ("fedem", "fedrc"))
    assert em[:, 0].std() > 0.15 and rc[:, 0].std() < em[:, 0].std() / 3
