"""On a GPU or TPU: nothing crosses to the host inside a chunk of rounds, and results are those of the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.engine.program import Settings, make_program
from cfljax.methods import METHODS
from tests import toy

pytestmark = pytest.mark.accelerator


@pytest.fixture(autouse=True)
def on_an_accelerator():
    if jax.default_backend() == "cpu":
        pytest.skip("no accelerator (unset JAX_PLATFORMS, which the tests set to cpu by default)")


def chunk(method_name, federation, sequential):
    model, entry = toy.model(), METHODS.entry(method_name)
    method = entry.make(entry.options(), model, toy.solver(model, sequential=sequential))
    program = make_program(method, Settings(4, 4, evaluations=5, sequential=sequential))
    run_keys, hyper = keys.root(0)[None], {"lr": jnp.array([0.1])}
    carry = jax.jit(program.start)(run_keys, hyper, {}, federation)
    arguments = (carry, run_keys, hyper, federation, jnp.array([0, 0], jnp.int32))
    compiled = jax.jit(program.rounds).lower(*arguments).compile()
    return compiled, carry, (run_keys, hyper, federation)


def test_no_transfer_inside_a_chunk():
    federation = toy.federation("label_permutation", clients=6, groups=2)
    compiled, carry, rest = chunk("fedavg", federation, False)
    at = jax.device_put(jnp.array([0, 4], jnp.int32))
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(compiled(carry, *rest, at))


@pytest.mark.parametrize("name", ["fedavg", "oracle", "local"])
def test_results_are_those_of_the_cpu(name):
    results = []
    for device, sequential in ((jax.devices()[0], False), (jax.devices("cpu")[0], True)):
        with jax.default_device(device):
            federation = jax.device_put(toy.federation("label_permutation", clients=6, groups=2), device)
            compiled, carry, rest = chunk(name, federation, sequential)
            carry, _ = compiled(carry, *rest, jnp.array([0, 4], jnp.int32))
            results.append(np.asarray(carry.state.models))
    assert np.allclose(*results, atol=1e-5)
