"""Networks in bfloat16: how far they are from float32."""

import jax
import numpy as np
import pytest

import cfljax
from cfljax import keys, models
from cfljax.models.half import in_bfloat16
from cfljax.types import Jobs
from tests import toy
from tests.often import rarely

KEY = keys.root(1)


def close(part, whole, least, most):
    """Whether the distance is between these shares of the length: more than none, since nothing may have been left in float32."""
    part, whole = np.asarray(part), np.asarray(whole)
    share = float(np.linalg.norm(part - whole) / np.linalg.norm(whole))
    assert least < share < most, share


@pytest.mark.parametrize(("name", "options"), [("mlp", {"hidden": [16]}), rarely("mclr", None)])
def test_updates_differ_by_the_digits_of_bfloat16(name, options):
    there, model = toy.federation(), models.build(name, options, (6,), 4)
    clients, start = np.arange(there.clients, dtype=np.int32), np.asarray(model.init(KEY))[None]
    jobs = Jobs(clients, clients >= 0, np.ones(there.clients, np.float32), start, 0 * clients)
    solvers = [toy.solver(of, epochs=2, gram=4096) for of in (in_bfloat16(model), model)]
    each = [toy.fit_of(solver)(KEY, there, jobs, {"lr": np.float32(0.1)}) for solver in solvers]
    assert all(update.delta.dtype == update.loss.dtype == np.float32 for update in each)
    close(each[0].delta, each[1].delta, 1e-4, 2e-2)
    close(each[0].loss, each[1].loss, 1e-6, 2e-2)


def test_a_convolutional_network_computes_in_bfloat16_throughout():
    model = models.build("cnn", {"channels": [4], "kernel": 3, "dense": [8]}, (8, 8), 4)
    half, x, params = in_bfloat16(model), np.random.default_rng(0).normal(size=(5, 8, 8)), model.unravel(model.init(KEY))
    x = x.astype(np.float32)
    close(*jax.jit(lambda params: (half.forward(params, x), model.forward(params, x)))(params), 1e-4, 3e-2)
    program = str(jax.make_jaxpr(jax.grad(lambda params: half.forward(params, x).sum()))(params))
    products = [line for line in program.splitlines() if "dot_general" in line or "conv_general" in line]
    assert products and all(":bf16[" in line.split("=")[0] for line in products)


def test_a_spec_asks_for_it():
    options = {"data": {"name": "digits", "clients": 5}, "model": "mclr", "rounds": 2, "lr": 0.1}
    half, whole = (cfljax.run("fedavg", precision=precision, **options) for precision in ("bfloat16", "highest"))
    close(*(run.params(0)["dense_0"]["kernel"] for run in (half, whole)), 1e-4, 2e-2)
    assert abs(half.history["accuracy"][-1] - whole.history["accuracy"][-1]) < 0.02
