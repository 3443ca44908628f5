"""Networks in bfloat16: how far they are from float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax import keys, models
from cfljax.config import read_spec
from cfljax.experiment.assemble import host_federation, model_of
from cfljax.models.blocks import group_norm
from cfljax.models.started import in_bfloat16
from cfljax.types import Jobs
from tests import toy
from tests.often import rarely

KEY = keys.root(1)


def close(part, whole, least, most):
    """Whether the distance is between these shares of the length: more than none, since nothing may
    have been left in float32."""
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
    half, x, params = (
        in_bfloat16(model),
        np.random.default_rng(0).normal(size=(5, 8, 8)),
        model.unravel(model.init(KEY)),
    )
    x = x.astype(np.float32)
    close(
        *jax.jit(lambda params: (half.forward(params, x), model.forward(params, x)))(params),
        1e-4,
        3e-2,
    )
    program = str(jax.make_jaxpr(jax.grad(lambda params: half.forward(params, x).sum()))(params))
    products = [
        line for line in program.splitlines() if "dot_general" in line or "conv_general" in line
    ]
    assert products and all(":bf16[" in line.split("=")[0] for line in products)


def test_a_spec_asks_for_it():
    options = {"data": {"name": "digits", "clients": 5}, "model": "mclr", "rounds": 2, "lr": 0.1}
    half, whole = (
        cfljax.run("fedavg", precision=precision, **options)
        for precision in ("bfloat16", "highest")
    )
    close(*(run.params(0)["dense_0"]["kernel"] for run in (half, whole)), 1e-4, 2e-2)
    assert abs(half.history["accuracy"][-1] - whole.history["accuracy"][-1]) < 0.02


def test_ids_of_tokens_are_not_rounded():
    """bfloat16 has 407 of the numbers below 600."""
    options = {"task": "class", "vocabulary": 600, "width": 16, "depth": 1, "heads": 2}
    model = models.build("transformer", options, (4,), 2)
    half, ids = in_bfloat16(model, tokens=True), np.float32([[300, 7, 7, 7], [301, 7, 7, 7]])
    outputs = jax.jit(lambda: half.forward(model.unravel(model.init(KEY)), ids, None))()
    assert not np.array_equal(outputs[0], outputs[1])
    data = {
        "name": "blobs",
        "samples": 60,
        "features": 5,
        "classes": 3,
        "partition": "iid",
        "clients": 3,
    }
    spec = {
        "data": data,
        "model": "mclr",
        "method": ["fedavg"],
        "train": {"precision": "bfloat16"},
        "seeds": [0],
    }
    (run,) = read_spec(spec).runs()
    federation = host_federation(run)
    ids = federation.pool._replace(x=np.full((60, 5), 301, np.int32))
    x, signs = np.float32([[301, 300, 301, 300, 0]]), np.float32([1, -1, 1, -1, 0])
    for pool, difference in ((federation.pool, 0.0), (ids, 2.0)):
        model = model_of(run, dataclasses.replace(federation, pool=pool))
        form = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), np.float32))
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), form)
        params = jax.tree.map(lambda leaf: (leaf.T + (signs if leaf.ndim == 2 else 0)).T, zeros)
        assert float(jax.jit(model.forward)(params, x)[0, 0]) == difference


def test_group_normalisation_is_that_of_float32():
    x = 4 + 0.2 * np.random.default_rng(0).normal(size=(2, 8, 8, 4))
    made = [
        jax.jit(group_norm, static_argnums=3)(
            x.astype(kind), np.ones(4, kind), np.zeros(4, kind), 2
        )
        for kind in (jnp.bfloat16, jnp.float32)
    ]
    assert 0.95 < np.asarray(made[0], np.float32).std() < 1.05
    assert made[0].dtype == jnp.bfloat16
