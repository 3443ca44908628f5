"""Clients side by side train as they do one after another, and count their steps together."""

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.local import schedule
from tests import toy
from tests.local.test_plans import jobs_of


@pytest.mark.parametrize("work", [{"epochs": 2}, {"steps": 7}], ids=["epochs", "steps"])
def test_clients_side_by_side_train_as_one_after_another(work, monkeypatch):
    federation, model = toy.federation(), toy.model(7)
    weights = np.float32(0.5 + np.random.default_rng(7).random((federation.clients, federation.train.longest)))
    jobs = jobs_of(federation, model, False, True)._replace(weights=weights)
    hyper = {"lr": np.float32(0.05), "momentum": np.float32(0.9)}
    fit = lambda solver: jax.tree.map(np.asarray, jax.jit(solver.fit)(keys.root(5), federation, jobs, hyper))  # noqa: E731
    one, together = fit(toy.pulling_solver(model, **work)), fit(toy.pulling_solver(model, lanes=0, **work))
    for name in ("MAX_SHUFFLED", "MAX_SHUFFLED_STEPS"):
        monkeypatch.setattr(schedule, name, 0)
    each = fit(toy.pulling_solver(model, lanes=0, **work))  # draws a shuffle when its epoch begins
    assert one.velocity is not None and len(set(np.asarray(one.steps).tolist())) > 2
    for other in (together, each):
        assert np.array_equal(one.steps, other.steps)
        for a, b in ((one.delta, other.delta), (one.loss, other.loss), (one.velocity, other.velocity)):
            assert np.abs(a - b).max() < 1e-5 * np.abs(a).max() > 0


def test_clients_side_by_side_count_their_steps_together():
    n = np.int32([[2, 0, 1], [3, 1, 0]])
    assert np.array_equal(jax.jit(jax.vmap(jax.vmap(schedule.max_of, out_axes=None), out_axes=None))(n), 3)
