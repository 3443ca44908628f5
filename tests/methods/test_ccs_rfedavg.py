"""CCS + RFedAvg against a plain numpy program, its identities, and what happens to broken and
identical participants."""

import functools

import jax
import numpy as np
import pytest

from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.federation.common import labels_seen
from cfljax.methods import METHODS
from tests import play, toy
from tests.often import rarely
from tests.reference import ccs_rfedavg as reference
from tests.reference import plain

SEED, ROUNDS, PARTICIPANTS = 3, 4, 6
NET = plain.Net(6, 4)


@functools.cache
def federation():
    return toy.federation("dirichlet", clients=9, alpha=0.5)


def run(federation_=None, theta=0.1, l_star=0.05, **options):
    numbers = {"theta": theta, "l_star": l_star}
    return play.rounds(
        "ccs_rfedavg", federation_ or federation(), ROUNDS, PARTICIPANTS, SEED, **numbers, **options
    )


def want(federation_=None, rounds=ROUNDS, **options):
    return reference.run(
        NET, federation_ or federation(), toy.start(SEED), SEED, rounds, PARTICIPANTS, **options
    )


def check(out, expected):
    w, seen = expected
    assert np.abs(out.models()[0] - w).max() < 1e-5
    for t, (labels, epsilon, p, balance) in enumerate(seen):
        assert np.array_equal(out.diag("participant_labels", t), labels)
        assert out.diag("epsilon", t) == pytest.approx(epsilon, abs=1e-4)
        assert out.diag("clusters", t) == labels.max() + 1
        assert (
            np.allclose(out.diag("p", t)[: len(p)], p, atol=1e-6)
            and not out.diag("p", t)[len(p) :].any()
        )
        assert np.allclose(out.diag("balance", t), balance, atol=1e-6)
        assert out.diag("balance_error", t) == pytest.approx(
            ((balance - 1 / 4) ** 2).sum(), abs=1e-6
        )
        assert out.diag("imbalance_degree", t) == pytest.approx(
            balance.max() / balance.min(), rel=1e-3
        )


def test_follows_the_plain_program():
    out, expected = run(), want()
    check(out, expected)
    assert len({labels.max() for labels, *_ in expected[1]}) > 1  # the number of clusters changes


@pytest.mark.parametrize(("theta", "l_star"), [(0.8, 0.05), (0.1, 1.0), (0.3, 9.0)])
def test_the_threshold_follows_its_numbers(theta, l_star):
    check(run(theta=theta, l_star=l_star), want(theta=theta, l_star=l_star))


def test_optimal_weights_are_no_worse_than_those_of_a_generic_solver():
    out, (_, seen) = run(weights="optimal"), want(weights="optimal", rounds=1)
    labels, _, _, balance = seen[0]
    assert np.array_equal(out.diag("participant_labels", 0), labels)
    assert out.diag("balance_error", 0) <= ((balance - 1 / 4) ** 2).sum() + 1e-6
    assert out.diag("balance_error", 0) < run().diag("balance_error", 0)


@pytest.mark.parametrize("weights", ["rfedavg", "fedavg"])
def test_a_drift_of_labels_changes_the_counts(weights):
    """They decide the balance that is reported, and with "rfedavg" the weights."""
    drifts = toy.relabelled(federation(), round=2)
    check(run(drifts, weights=weights), want(drifts, weights=weights))


@pytest.mark.parametrize("weights", ["rfedavg", rarely("fedavg")])
def test_updates_in_place_of_gradients_follow_the_plain_program(weights):
    check(
        run(local="update", weights=weights, work={"epochs": 2}),
        want(local="update", weights=weights, epochs=2, batch=5),
    )


@pytest.mark.parametrize("clusters", [2, rarely(3)])
def test_kmeans_follows_the_plain_program_which_tries_every_partition(clusters):
    out, expected = run(clustering="kmeans", clusters=clusters), want(clusters=clusters)
    check(out, expected)
    labels = [labels for labels, *_ in expected[1]]
    assert all(each.max() == clusters - 1 for each in labels)
    covered = [each for each, *_ in want()[1]]
    assert any(
        len({*zip(a, b, strict=True)}) > clusters for a, b in zip(labels, covered, strict=True)
    )


def test_the_participants_of_a_round_are_kept():
    out = run()
    for t in range(ROUNDS):
        drawn = plain.cohort(SEED, t, np.arange(9), PARTICIPANTS)
        assert np.array_equal(out.diag("participants", t), drawn)


def test_kmeans_with_a_cluster_per_participant_weighs_each_by_itself():
    out = run(clustering="kmeans", clusters=PARTICIPANTS)
    counts = labels_seen(federation()).astype(float)
    for t in range(ROUNDS):
        labels = out.diag("participant_labels", t)
        assert sorted(labels) == list(range(PARTICIPANTS))
        ids = plain.cohort(SEED, t, np.arange(9), PARTICIPANTS)[np.argsort(labels)]
        assert np.allclose(
            out.diag("p", t), reference.rfedavg(np.arange(6), counts[ids], counts.sum()), atol=1e-6
        )


def test_identical_participants_are_one_cluster_and_take_the_step_of_one():
    out, w = run(toy.identical(federation())), toy.start(SEED)
    for _ in range(ROUNDS):
        w = w - 0.1 * NET.gradient(w, *plain.Clients(federation()).train[0])
    assert all(info.diag["clusters"] == 1 for info in out.infos)
    assert np.abs(out.models()[0] - w).max() < 1e-5


def test_a_broken_client_is_left_out_and_counted():
    out = run(toy.broken(federation(), 2))
    there = [
        np.flatnonzero(plain.cohort(SEED, t, np.arange(9), PARTICIPANTS) == 2)
        for t in range(ROUNDS)
    ]
    assert any(len(at) for at in there)
    for t, at in enumerate(there):
        assert out.infos[t].nonfinite == len(at) and np.all(
            out.diag("participant_labels", t)[at] == -1
        )
        assert np.isfinite(out.diag("epsilon", t)) and np.isfinite(out.models(t + 1)).all()


def test_traffic_is_one_model_and_what_the_server_asks_for():
    for options, floats in (
        ({}, 2),
        ({"weights": "optimal"}, 1 + 4),
        ({"clustering": "kmeans", "clusters": PARTICIPANTS}, 1),
    ):
        info = run(**options).infos[0]
        assert tuple(info.traffic) == (PARTICIPANTS, PARTICIPANTS, 0, floats * PARTICIPANTS)


def test_class_counts_are_of_the_labels_that_clients_see():
    fed = toy.federation("label_permutation", clients=6, groups=2)
    expected = [
        np.bincount(y, minlength=4) for _, y in plain.Clients(jax.tree.map(np.asarray, fed)).train
    ]
    assert np.array_equal(labels_seen(fed), expected)


def test_the_host_warns_when_the_target_is_reached_at_the_start():
    with pytest.warns(UserWarning, match="l_star"):
        (out,) = play.batch(
            "ccs_rfedavg", federation(), 1, PARTICIPANTS, [SEED], theta=0.1, l_star=50.0
        )
    assert out.diag["loss_start"] < 50 and abs(out.diag["epsilon"][-1]) < 1e-6
    assert len(out.history["accuracy"]) == 2


def test_impossible_options_are_refused():
    with pytest.raises(SpecError, match="clusters = 10"):
        run(clustering="kmeans")
    config = METHODS.check("ccs_rfedavg", {}, "method")
    with pytest.raises(SpecError, match="momentum"):
        config.check_train("method.ccs_rfedavg", Train(momentum=0.9))
    config.check_train("method.ccs_rfedavg", Train())
