"""Clients of unequal work in the lanes of a queue train as they do side by side."""

from __future__ import annotations

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.simulate import simulate
from cfljax.experiment import assemble
from cfljax.experiment.batching import make_batches
from cfljax.local import queue

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
