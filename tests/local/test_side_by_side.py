"""Clients side by side train as they do one after another, and count their steps together."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.simulate import simulate
from cfljax.experiment import assemble
from cfljax.experiment.batching import make_batches
from cfljax.local import queue, schedule
from tests import toy
from tests.local.test_plans import jobs_of
from tests.often import rarely


@pytest.mark.parametrize("work", [{"epochs": 2}, rarely({"steps": 7})], ids=["epochs", "steps"])
def test_clients_side_by_side_train_as_one_after_another(work, monkeypatch):
    federation, model = toy.federation(), toy.model(7)
    weights = np.float32(
        0.5 + np.random.default_rng(7).random((federation.clients, federation.train.longest))
    )
    jobs = jobs_of(federation, model, False, True)._replace(weights=weights)
    hyper = {"lr": np.float32(0.05), "momentum": np.float32(0.9)}

    def fit(solver):
        return jax.tree.map(np.asarray, jax.jit(solver.fit)(keys.root(5), federation, jobs, hyper))

    one, together = (
        fit(toy.pulling_solver(model, **work)),
        fit(toy.pulling_solver(model, lanes=0, **work)),
    )
    for name in ("MAX_SHUFFLED", "MAX_SHUFFLED_STEPS"):
        monkeypatch.setattr(schedule, name, 0)
    each = fit(toy.pulling_solver(model, lanes=0, **work))  # draws a shuffle when its epoch begins
    assert one.velocity is not None and len(set(np.asarray(one.steps).tolist())) > 2
    for other in (together, each):
        assert np.array_equal(one.steps, other.steps)
        for a, b in (
            (one.delta, other.delta),
            (one.loss, other.loss),
            (one.velocity, other.velocity),
        ):
            assert np.abs(a - b).max() < 1e-5 * np.abs(a).max() > 0


def test_clients_side_by_side_count_their_steps_together():
    n = np.int32([[2, 0, 1], [3, 1, 0]])
    assert np.array_equal(
        jax.jit(jax.vmap(jax.vmap(schedule.max_of, out_axes=None), out_axes=None))(n), 3
    )


TRAIN_IN_LANES = queue._Lanes.train
DATA = {
    "name": "blobs",
    "samples": 600,
    "features": 6,
    "classes": 4,
    "partition": "quantity",
    "clients": 12,
    "normalise": "none",
}
TRAIN = {"rounds": 3, "participation": 6, "epochs": 2, "batch": 5, "lr": 0.1}
MORE = {
    "plain": {},
    "momentum and feedback": {
        "momentum": 0.9,
        "compress": {"name": "topk", "keep": 0.2, "feedback": True},
    },
    "a head at home": {"parts": {"head": "client"}},
}


def outputs(monkeypatch, method, more, lanes):
    """Simulate two runs side by side, as on a GPU, in this number of lanes."""
    taken = []

    def train(self, jobs):
        taken.append(jobs.which.shape)
        return TRAIN_IN_LANES(self, jobs)

    monkeypatch.setattr("cfljax.experiment.execution.choose_lanes", lambda steps: lanes)
    monkeypatch.setattr(queue._Lanes, "train", train)
    table = {
        "data": DATA,
        "model": {"name": "mlp", "hidden": [8]},
        "method": [method],
        "train": TRAIN | more,
        "seeds": [0, 1],
    }
    (batch,) = make_batches(read_spec(table).runs(), 2)
    parts = assemble.assemble(
        batch.first, 2, describe_machine()._replace(backend="gpu", kind="of a test")
    )
    return simulate(parts, batch.seeds, batch.hypers), taken


IFCA, FEDPROX = {"name": "ifca", "clusters": 2}, {"name": "fedprox", "mu": 0.5}
LANES = [(IFCA, "momentum and feedback")]
LANES += [rarely(IFCA, each) for each in ("plain", "a head at home")]
LANES += [rarely(FEDPROX, each) for each in MORE] + [rarely({"name": "scaffold"}, "plain")]


@pytest.mark.parametrize(("method", "more"), LANES, ids=str)
def test_lanes_change_no_result(monkeypatch, method, more):
    (side_by_side, none), (queued, jobs) = (
        outputs(monkeypatch, method, MORE[more], lanes) for lanes in (0, 3)
    )
    assert not none and (12,) in jobs  # six participants of two runs in one queue
    for one, other in zip(side_by_side, queued, strict=True):
        np.testing.assert_allclose(one.models, other.models, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(one.history["accuracy"], other.history["accuracy"])


def test_the_number_of_lanes():
    assert queue.choose_lanes([10] * 1000) == 0  # clients alike
    assert queue.choose_lanes([3000] + [100] * 19) == 0  # few clients
    assert queue.choose_lanes([3300] * 2 + [120] * 1278) == 72


def test_a_number_of_a_run_is_had_by_each_client_of_it():
    """Whatever only runs or only clients have for themselves; a GPU's kernels rely on it."""
    like = np.zeros((2, 3), np.float32)

    def over(run_axis, client_axis):
        of_clients = jax.vmap(schedule.for_each, in_axes=(client_axis, 0), out_axes=0)
        return jax.jit(jax.vmap(of_clients, in_axes=(run_axis, 0), out_axes=0))

    of_run, of_client = np.float32([0, 1]), np.float32([0, 1, 2])
    np.testing.assert_array_equal(over(0, None)(of_run, like), [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(over(None, 0)(of_client, like), [[0, 1, 2], [0, 1, 2]])
    unmapped = jax.vmap(schedule.for_each, in_axes=(None, 0), out_axes=None)
    with pytest.raises(ValueError, match="out_axes"):  # it has an axis of clients
        jax.eval_shape(unmapped, np.float32(1), like[0])
