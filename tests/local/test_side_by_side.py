"""Clients side by side: their steps are counted together, and their samples looked up before the first."""

import dataclasses

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.local import schedule, side_by_side
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
