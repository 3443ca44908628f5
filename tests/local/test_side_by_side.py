"""Clients side by side: their steps are counted together, and their samples looked up before the first."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.simulate import simulate
from cfljax.experiment import assemble
from cfljax.experiment.batching import make_batches
from cfljax.local import queue, schedule, side_by_side
from cfljax.local.gradients import lays_out
from tests import toy
from tests.local.test_plans import jobs_of


@pytest.mark.parametrize("work", [{"epochs": 2}, {"steps": 7}], ids=["epochs", "steps"])
def test_samples_looked_up_before_the_steps_are_those_of_the_pool(work, monkeypatch):
    """What a TPU does, on this CPU: the batches of all steps in a row, or only the places of their samples."""
    federation, model = toy.federation(), toy.model(7)
    weights = np.float32(0.5 + np.random.default_rng(7).random((federation.clients, federation.train.longest)))
    jobs = jobs_of(federation, model, False, True)._replace(weights=weights)
    hyper = {"lr": np.float32(0.05), "momentum": np.float32(0.9)}
    alone = toy.pulling_solver(model, **work)
    together = toy.pulling_solver(model, lanes=0, **work)
    in_lines = dataclasses.replace(together, plan=together.plan._replace(on_cpu=False))
    assert lays_out(in_lines.plan, federation, in_lines.work) and not lays_out(together.plan, federation, together.work)
    fit = lambda solver: jax.tree.map(np.asarray, jax.jit(solver.fit)(keys.root(5), federation, jobs, hyper))  # noqa: E731
    fits = [fit(solver) for solver in (alone, together, in_lines)]
    for name in ("MAX_SHUFFLED", "MAX_SHUFFLED_STEPS"):
        monkeypatch.setattr(schedule, name, 0)
    one, *others = [*fits, fit(toy.pulling_solver(model, lanes=0, **work))]  # of which nothing is compiled
    assert one.velocity is not None and len(set(np.asarray(one.steps).tolist())) > 2
    for other in others:
        assert np.array_equal(one.steps, other.steps)
        for a, b in ((one.delta, other.delta), (one.loss, other.loss), (one.velocity, other.velocity)):
            assert np.abs(a - b).max() < 1e-5 * np.abs(a).max() > 0


def test_clients_side_by_side_count_their_steps_together():
    a, n = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.int32([[2, 0, 1], [3, 1, 0]])
    assert np.array_equal(jax.jit(jax.vmap(jax.vmap(side_by_side.max_of, out_axes=None), out_axes=None))(n), 3)
    at = jax.jit(jax.vmap(jax.vmap(side_by_side.take_step, in_axes=(0, None)), in_axes=(0, None)))
    assert np.array_equal(at(a, np.int32(2)), a[:, :, 2]) and "gather" not in str(jax.make_jaxpr(at)(a, 2))
    each = jax.jit(jax.vmap(jax.vmap(side_by_side.take_step)))(a, n)
    assert np.array_equal(each, np.take_along_axis(a, n[..., None], 2)[..., 0])


INNER = queue._train
DATA = {"name": "blobs", "samples": 600, "features": 6, "classes": 4, "partition": "quantity", "clients": 12, "normalise": "none"}
TRAIN = {"rounds": 3, "participation": 6, "epochs": 2, "batch": 5, "lr": 0.1}
MORE = {
    "plain": {},
    "momentum and compression": {"momentum": 0.9, "compress": {"name": "topk", "keep": 0.2}},
    "a head at home": {"parts": {"head": "client"}},
}


def outputs(monkeypatch, method, more, lanes):
    """Simulate two runs side by side, as on a GPU, in this number of lanes."""
    taken, inner = [], INNER
    monkeypatch.setattr("cfljax.experiment.execution.choose_lanes", lambda steps: lanes)
    monkeypatch.setattr(queue, "_train", lambda *args: taken.append(args[3].which.shape) or inner(*args))
    table = {"data": DATA, "model": {"name": "mlp", "hidden": [8]}, "method": [method], "train": TRAIN | more, "seeds": [0, 1]}
    (batch,) = make_batches(read_spec(table).runs(), 2)
    parts = assemble.assemble(batch.first, 2, describe_machine()._replace(backend="gpu", kind="of a test"))
    return simulate(parts, batch.seeds, batch.hypers), taken


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@pytest.mark.parametrize("method", [{"name": "ifca", "clusters": 2}, {"name": "fedprox", "mu": 0.5}, {"name": "scaffold"}], ids=str)
def test_lanes_change_no_result(monkeypatch, method, more):
    if method["name"] == "scaffold" and more:
        pytest.skip("SCAFFOLD has steps of its own")
    (side_by_side, none), (queued, jobs) = (outputs(monkeypatch, method, more, lanes) for lanes in (0, 3))
    assert not none and ((12,) in jobs or "parts" in more)  # six participants of two runs in one queue
    for one, other in zip(side_by_side, queued, strict=True):
        np.testing.assert_allclose(one.models, other.models, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(one.history["accuracy"], other.history["accuracy"])


def test_the_number_of_lanes():
    assert queue.choose_lanes([10] * 1000) == 0  # clients alike
    assert queue.choose_lanes([3000] + [100] * 19) == 0  # few clients
    assert queue.choose_lanes([3300] * 2 + [120] * 1278) == 72
