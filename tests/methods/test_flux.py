"""FLUX against a plain numpy program, who comes late, and its elbow."""

import functools

import numpy as np
import pytest

from cfljax.kernels import host
from tests import play, toy
from tests.often import rarely
from tests.reference import flux as reference
from tests.reference import host_clusters, plain


@pytest.mark.parametrize(
    ("part", "seed"),
    [({"partition": "label_permutation", "groups": 2}, 2), rarely({"partition": "dirichlet"}, 3)],
)
def test_flux_follows_the_plain_program(part, seed):
    """Two clients come after the clustering. In the first federation a tie decides the clusters."""
    options = {"alpha": 0.3} if part["partition"] == "dirichlet" else {}
    made = toy.replace(
        toy.federation(clients=10, seed=seed, **part, **options),
        arrive=np.array([0] * 8 + [3, 3], np.int32),
    )
    clients, model, net = plain.Clients(made), toy.model(7), plain.Net(6, 4, 7)
    out = play.rounds("flux", made, 4, None, seed, model=model, cluster_after=2, max_clusters=10)
    found, nearest = reference.flux(
        net, clients, out.models(2)[0].astype(np.float64), 4, np.arange(8)
    )
    before, own = np.array([0] * 8 + [-1, -1]), np.append(found, [-1, -1])
    assert np.array_equal(out.labels(1), before) and np.array_equal(out.labels(2), own)
    assert np.array_equal(out.labels()[8:], nearest[8:]) and len(set(found)) > 1
    # 5 parts of 4 directions, of which late clients send one
    assert [int(info.traffic.floats_up) for info in out.infos] == [
        0,
        0,
        8 * (2 * 5 * 4 + 1),
        2 * 2 * 4,
    ]
    w, key = (
        toy.first_model_of(model, seed),
        functools.partial(plain.round_key, seed),
    )

    def rule(t, models, labels, updates):
        return (
            (models, labels) if t != 2 else (dict.fromkeys(range(found.max() + 1), models[0]), own)
        )

    models, _ = host_clusters.rounds(net, clients, w, before, key, lambda t: np.arange(8), rule, 3)
    assert max(np.abs(out.models(3)[k] - w).max() for k, w in models.items()) < 1e-5


def test_flux_bills_who_comes_later():
    """Before the clustering nobody describes anything; after it a client does so when it first
    takes part, by the model of the clustering."""
    made = toy.replace(
        toy.federation("label_permutation", groups=2, clients=10, seed=2),
        arrive=np.array([0] * 7 + [1, 3, 4], np.int32),
    )
    model = toy.model(7)
    out = play.rounds("flux", made, 6, None, 2, model=model, cluster_after=2, max_clusters=10)
    sent = [info.traffic for info in out.infos]
    assert [int(each.floats_up) for each in sent] == [0, 0, 8 * (2 * 5 * 4 + 1), 2 * 4, 2 * 4, 0]
    assert [int(each.vectors_down) for each in sent] == [7, 8, 8, 9 + 1, 10 + 1, 10]
    assert [int(each.vectors_up) for each in sent] == [7, 8, 8, 9, 10, 10]


@pytest.mark.parametrize("unit", [1, 1 / 3, 0.7])
@pytest.mark.parametrize(
    ("distances", "at"),
    [
        ([1, 1.1, 1.2, 1.3, 5, 9], 3),
        # no elbow
        ([0, 1, 2, 3, 4], 4),
        ([1, 1, 1, 1, 1], 4),
        # two that are each other's nearest: the mirrored curve is 0.55, 0.35, 0.4, 0.2, 0 above the
        # line, and 0.35 is not below 0.55 − 1/5, so that the elbow is where it is 0.4
        ([1, 1, 1, 2, 2, 5], 2),
        # three pairs: −0.2, 0.1, −0.1, 0.2, 0 are never below
        ([1, 1, 2, 2, 3, 3], 5),
    ],
)
def test_the_elbow_is_kneedle_s(distances, at, unit):
    assert host.elbow(np.array(distances) * unit) == at
