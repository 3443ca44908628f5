"""What makes steps cheaper on a CPU changes no result: a narrow first kernel lying flat, all epochs shuffled at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import data, keys
from cfljax.local import schedule, turned
from tests import toy
from tests.local.test_plans import PULLS, jobs_of


@pytest.fixture(scope="module")
def wide():
    return toy.federation(source=data.load("blobs", {"samples": 300, "features": 40, "classes": 4}, seed=0))


@pytest.mark.parametrize("hidden", [None, 7])
def test_a_turned_kernel_trains_to_the_same_model(wide, monkeypatch, hidden):
    model = toy.model(hidden, features=40)
    assert turned.turned(model) is not model
    numbers, anchored, moving = PULLS["a velocity and both pulls"]
    jobs = jobs_of(wide, model, anchored, moving)
    hyper = {name: jnp.float32(value) for name, value in ({"lr": 0.05} | numbers).items()}
    fit = lambda: jax.jit(toy.solver(model, epochs=3).fit)(keys.root(5), wide, jobs, hyper)  # noqa: E731
    lying = fit()
    monkeypatch.setattr(turned, "NARROW", 0)
    assert turned.turned(model) is model
    standing = fit()
    assert np.abs(lying.delta).max() > 0.01
    for one, other in zip(jax.tree.leaves(lying), jax.tree.leaves(standing), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_only_narrow_first_layers_are_turned():
    for hidden, is_turned in ((10, True), (11, False)):  # at most a quarter of the 40 inputs
        model = toy.model(hidden, features=40)
        assert (turned.turned(model) is not model) is is_turned
    model = toy.model(10, features=40)
    w = jax.random.normal(jax.random.key(0), (model.size,))
    kernel = turned.turned(model).unravel(w)["dense_0"]["kernel"]
    assert kernel.shape == (10, 40)
    assert np.array_equal(turned.turned(model).ravel(turned.turned(model).unravel(w)), w)


@pytest.mark.parametrize("gram", [0, 4096])
def test_epochs_shuffled_at_once_are_the_epochs_shuffled_in_turn(wide, monkeypatch, gram):
    model = toy.model(features=40)
    jobs, hyper = jobs_of(wide, model, False, False), {"lr": jnp.float32(0.05)}
    fit = lambda: jax.jit(toy.solver(model, epochs=4, gram=gram).fit)(keys.root(5), wide, jobs, hyper)  # noqa: E731
    at_once = fit()
    monkeypatch.setattr(schedule, "SHUFFLED", 0)
    in_turn = fit()
    assert np.array_equal(at_once.delta, in_turn.delta) and np.array_equal(at_once.steps, in_turn.steps)
