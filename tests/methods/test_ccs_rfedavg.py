"""CCS + RFedAvg against a plain numpy program, its identities, and what happens to broken and lonely participants."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.engine import Settings
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.methods.ccs_rfedavg import class_counts
from cfljax.methods.common import first_model
from cfljax.simulate import simulate
from tests import toy
from tests.reference import ccs_rfedavg as reference
from tests.reference import plain

SEED, ROUNDS, PARTICIPANTS = 3, 4, 6
HYPER = {"lr": 0.1, "theta": 0.1, "l_star": 0.05}


@functools.cache
def federation():
    return toy.federation("dirichlet", clients=9, alpha=0.5)


def run(hyper=None, federation_=None, participants=PARTICIPANTS, name="ccs_rfedavg", rounds=ROUNDS, epochs=1, seed=SEED, **options):
    model, entry = toy.model(), METHODS.entry(name)
    config = METHODS.check(name, options, "method")
    solver = toy.solver(model, epochs=epochs)
    settings = Settings(rounds=rounds, participants=participants, evaluations=rounds)
    fed = federation_ or federation()
    shapes = str(jax.tree.map(jnp.shape, fed))
    key = (name, config, settings, epochs, shapes)
    return simulate(entry.make(config, model, solver), model, fed, settings, [seed], [hyper or HYPER], program_key=key)[0]


def want(rounds=ROUNDS, **options):
    w = np.asarray(first_model(jax.random.key(SEED, impl="threefry2x32"), toy.model()), np.float64)
    return reference.run(plain.Net(6, 4), federation(), w, SEED, rounds, PARTICIPANTS, **options)


def check(out, expected, rounds=ROUNDS):
    w, seen = expected
    assert np.abs(out.models[0] - w).max() < 1e-5
    for t, (labels, epsilon, p, balance) in enumerate(seen, start=1):
        assert np.array_equal(out.diag["participant_labels"][t], labels)
        assert out.diag["epsilon"][t] == pytest.approx(epsilon, abs=1e-4)
        assert out.diag["clusters"][t] == labels.max() + 1
        assert np.allclose(out.diag["p"][t][: len(p)], p, atol=2e-3 if len(p) > 1 else 1e-6)
        assert np.allclose(out.diag["balance"][t], balance, atol=2e-3)
        assert out.diag["balance_error"][t] == pytest.approx(((balance - 1 / 4) ** 2).sum(), abs=1e-5)


def test_follows_the_plain_program():
    out, expected = run(), want()
    check(out, expected)
    assert len({labels.max() for labels, *_ in expected[1]}) > 1  # the number of clusters changes


@pytest.mark.parametrize(("theta", "l_star"), [(0.8, 0.05), (0.1, 1.0), (0.3, 9.0)])
def test_threshold_numbers_are_traced(theta, l_star):
    check(run({"lr": 0.1, "theta": theta, "l_star": l_star}), want(theta=theta, l_star=l_star))


def test_optimal_weights_follow_the_plain_program():
    out, (w, seen) = run(weights="optimal"), want(weights="optimal", rounds=1)
    labels, _, _, balance = seen[0]
    assert np.array_equal(out.diag["participant_labels"][1], labels)
    assert out.diag["balance_error"][1] <= ((balance - 1 / 4) ** 2).sum() + 1e-6
    again = run()
    assert out.diag["balance_error"][1] <= again.diag["balance_error"][1] + 1e-6


def test_updates_in_place_of_gradients_follow_the_plain_program():
    out = run(local="update", epochs=2)
    check(out, want(local="update", epochs=2, batch=5))


def test_with_its_own_weights_it_is_fedavg():
    hyper = HYPER | {"momentum": 0.5}
    a = run(hyper, local="update", weights="fedavg", epochs=2)
    b = run({"lr": 0.1, "momentum": 0.5}, name="fedavg", epochs=2)
    assert np.array_equal(a.models, b.models)
    assert np.allclose(a.history["bytes_up"], b.history["bytes_up"])


def test_kmeans_with_a_cluster_per_participant_weighs_each_by_itself():
    out = run(clustering="kmeans", clusters=6)
    assert out.diag["clusters"][1] == PARTICIPANTS and sorted(out.diag["participant_labels"][1]) == list(range(6))
    ids = plain.cohort(SEED, 0, np.arange(9), PARTICIPANTS)
    counts = class_counts(federation()).astype(float)
    labels = out.diag["participant_labels"][1]
    by_label = np.argsort(labels)
    assert np.allclose(out.diag["p"][1], reference.rfedavg(np.arange(6), counts[ids][by_label], counts.sum()), atol=1e-5)


def test_identical_participants_are_one_cluster_and_one_step():
    one = toy.federation("iid", clients=1, samples_per_client=40)
    rows = np.tile(np.asarray(one.train.rows), 4)
    split = toy.replace(one.train, rows=rows, start=np.arange(4, dtype=np.int32) * 40, count=np.full(4, 40, np.int32))
    test = toy.replace(one.test, start=np.repeat(one.test.start, 4), count=np.repeat(one.test.count, 4))
    fields = {"uid": np.arange(4, dtype=np.int32), "group": np.zeros(4, np.int32), "arrive": np.zeros(4, np.int32)}
    four = jax.device_put(toy.replace(one, train=split, test=test, **fields))
    several, alone = run(federation_=four, participants=4), run(federation_=one, participants=1)
    assert np.all(several.diag["clusters"][1:] == 1) and np.all(alone.diag["clusters"][1:] == 1)
    assert np.abs(several.models - alone.models).max() < 1e-5


def test_a_broken_client_is_left_out_and_counted():
    x = np.asarray(federation().pool.x).copy()
    rows, start, count = (np.asarray(a) for a in (federation().train.rows, federation().train.start, federation().train.count))
    x[rows[start[2] : start[2] + count[2]]] = np.nan
    broken = toy.replace(federation(), pool=federation().pool._replace(x=jnp.asarray(x)))
    out = run(federation_=broken, participants=9)
    assert np.isfinite(out.models).all() and out.history["nonfinite"][-1] == ROUNDS
    assert np.all(out.diag["participant_labels"][1:, 2] == -1) and np.isfinite(out.diag["epsilon"][1:]).all()


def test_traffic_is_two_floats_more_than_one_model():
    d, up = toy.model().size, 4 * PARTICIPANTS * np.arange(ROUNDS + 1)
    assert np.array_equal(run().history["bytes_up"], up * (d + 2))
    assert np.array_equal(run().history["bytes_down"], up * d)
    assert np.array_equal(run(weights="optimal").history["bytes_up"], up * (d + 1 + 4))
    assert np.array_equal(run(clustering="kmeans", clusters=6).history["bytes_up"], up * (d + 1))


def test_class_counts_are_of_the_labels_that_clients_see():
    fed = toy.federation("label_permutation", clients=6, groups=2)
    clients = plain.Clients(jax.tree.map(np.asarray, fed))
    want = [np.bincount(y, minlength=4) for _, y in clients.train]
    assert np.array_equal(class_counts(fed), want)


def test_warns_when_the_target_is_reached_at_the_start():
    with pytest.warns(UserWarning, match="l_star"):
        out = run({"lr": 0.1, "theta": 0.1, "l_star": 50.0}, rounds=ROUNDS)
    assert out.diag["loss_start"] < 50 and np.all(np.abs(out.diag["epsilon"][1:]) < 1e-6)


def test_impossible_options_are_refused():
    with pytest.raises(SpecError, match="clusters = 10"):
        run(clustering="kmeans")
    config = METHODS.check("ccs_rfedavg", {}, "method")
    from cfljax.config import Train

    with pytest.raises(SpecError, match="momentum"):
        config.check_run("method.ccs_rfedavg", Train(momentum=0.9), None, None)
    config.check_run("method.ccs_rfedavg", Train(), None, None)
