"""What makes steps cheaper on a CPU changes no result: a narrow first kernel lying flat, all epochs
shuffled at once."""

import dataclasses

import jax
import numpy as np
import pytest

from cfljax import data, keys
from cfljax.local import gram, schedule, train, turned
from cfljax.local.train import make_stepper
from cfljax.models import layers as dense
from tests import toy
from tests.local.test_plans import PULLS, jobs_of
from tests.often import rarely


@pytest.fixture(scope="module")
def wide():
    return toy.federation(
        source=data.load("blobs", {"samples": 300, "features": 40, "classes": 4}, seed=0)
    )


@pytest.mark.parametrize("hidden", [None, 7])
def test_a_turned_kernel_trains_to_the_same_model(wide, monkeypatch, hidden):
    model = toy.model(hidden, features=40)
    numbers, anchored, moving = PULLS["a velocity and both pulls"]
    jobs = jobs_of(wide, model, anchored, moving)
    hyper = {name: np.float32(value) for name, value in ({"lr": 0.05} | numbers).items()}
    fit = lambda: jax.jit(toy.pulling_solver(model, epochs=3).fit)(keys.root(5), wide, jobs, hyper)  # noqa: E731
    lying = fit()
    monkeypatch.setattr(dense, "MAX_THIN_OUTPUTS", 0)
    assert (
        jax.eval_shape(turned.transpose_kernels(model).unravel, np.asarray(jobs.start)[0])[
            "dense_0"
        ]["kernel"].shape[0]
        == 40
    )
    standing = fit()
    assert np.abs(lying.delta).max() > 0.01
    for one, other in zip(jax.tree.leaves(lying), jax.tree.leaves(standing), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("hidden", "kernels"),
    [(10, [(10, 40), (10, 4)]), (11, [(40, 11), (11, 4)]), (16, [(40, 16), (4, 16)])],
)
def test_only_thin_kernels_are_turned(hidden, kernels):
    model = toy.model(hidden, features=40)  # at most a quarter as wide as long
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=shape).astype(np.float32) for shape in (model.size, (5, 40)))

    @jax.jit
    def both(w):
        tree = turned.transpose_kernels(model).unravel(w)
        outputs = (
            turned.transpose_kernels(model).forward(tree, x),
            model.forward(model.unravel(w), x),
        )
        return tree, turned.transpose_kernels(model).ravel(tree), outputs

    tree, flat, (ours, wanted) = both(w)
    assert [tree[name]["kernel"].shape for name in ("dense_0", "dense_1")] == kernels
    assert np.array_equal(flat, w)
    np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


def test_where_a_gpu_is_asked_every_kernel_lies_flat(wide, monkeypatch):
    model = toy.model(16, features=40)
    jobs, hyper = jobs_of(wide, model, False, False), {"lr": np.float32(0.05)}
    solver = toy.pulling_solver(model, lanes=0, epochs=3)
    gpu = dataclasses.replace(solver, plan=solver.plan._replace(asks_host=True))
    shapes = []

    def noting(rule, numbers, anchor):
        shapes.append([anchor[name]["kernel"].shape for name in ("dense_0", "dense_1")])
        return make_stepper(rule, numbers, anchor)

    monkeypatch.setattr(train, "make_stepper", noting)
    one, other = (jax.jit(each.fit)(keys.root(5), wide, jobs, hyper) for each in (solver, gpu))
    assert shapes == [[(40, 16), (16, 4)], [(16, 40), (4, 16)]]
    assert np.abs(one.delta).max() > 0.01 and np.array_equal(one.steps, other.steps)
    np.testing.assert_allclose(one.delta, other.delta, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["a velocity and both pulls", rarely("all pulls and momentum")])
def test_kernels_behind_a_gram_matrix_that_lie_flat_train_to_the_same_model(
    wide, monkeypatch, case
):
    numbers, anchored, moving = PULLS[case]
    model = toy.model(16, features=40)
    jobs = jobs_of(wide, model, anchored, moving)
    hyper = {name: np.float32(value) for name, value in ({"lr": 0.05} | numbers).items()}
    fits = []
    for narrow in (dense.MAX_THIN_OUTPUTS, 0):
        monkeypatch.setattr(dense, "MAX_THIN_OUTPUTS", narrow)
        shapes = []

        def noting(rule, hyper, anchor, shapes=shapes):
            shapes.append(anchor["dense_1"]["kernel"].shape)
            return make_stepper(rule, hyper, anchor)

        monkeypatch.setattr(gram, "make_stepper", noting)
        fits.append(
            jax.jit(toy.pulling_solver(model, epochs=3, gram=4096).fit)(
                keys.root(5), wide, jobs, hyper
            )
        )
        assert shapes[0] == ((4, 16) if narrow else (16, 4))
    assert np.abs(fits[0].delta).max() > 0.01
    for one, other in zip(*map(jax.tree.leaves, fits), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("most", [0, rarely(4096)])
def test_epochs_shuffled_at_once_are_the_epochs_shuffled_in_turn(wide, monkeypatch, most):
    model = toy.model(features=40)
    jobs, hyper = jobs_of(wide, model, False, False), {"lr": np.float32(0.05)}

    def fit():
        return jax.jit(toy.pulling_solver(model, epochs=4, gram=most).fit)(
            keys.root(5), wide, jobs, hyper
        )

    at_once = fit()
    monkeypatch.setattr(schedule, "MAX_SHUFFLED", 0)
    in_turn = fit()
    assert np.array_equal(at_once.delta, in_turn.delta) and np.array_equal(
        at_once.steps, in_turn.steps
    )
