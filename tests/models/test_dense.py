"""Products of dense layers: their gradients are those of a matrix product, of any order, for thin
kernels and others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.local.turned import transpose_kernels
from cfljax.models.layers import dense_product as product
from cfljax.models.layers import is_thin
from tests import toy

X = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
SHAPES = pytest.mark.parametrize("outputs", [4, 33])


def kernel_of(outputs):
    return np.random.default_rng(1).normal(size=(40, outputs)).astype(np.float32)


def loss_by(multiply):
    return lambda kernel, x: jnp.sum(jnp.tanh(multiply(x, kernel)) ** 2)


def agree(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, theirs)


@SHAPES
def test_gradients_are_those_of_a_matrix_product(outputs):
    kernel = kernel_of(outputs)
    assert is_thin(kernel.shape) == (outputs == 4)
    ours, theirs = (
        jax.jit(jax.value_and_grad(loss_by(f), (0, 1)))(kernel, X) for f in (product, jnp.matmul)
    )
    assert np.abs(theirs[1][0]).max() > 0.1
    agree(ours, theirs)


@SHAPES
def test_so_are_second_derivatives_and_changes_forward(outputs):
    kernel, change = kernel_of(outputs), kernel_of(outputs)[::-1]
    bent = lambda f: jax.jvp(lambda k: jax.grad(loss_by(f))(k, X), (kernel,), (change,))  # noqa: E731
    both = (product, jnp.matmul)
    along = lambda f: jax.jvp(f, (X, kernel), (X[::-1], change))  # noqa: E731
    for ours, theirs in jax.jit(lambda: [[of(f) for f in both] for of in (bent, along)])():
        agree(ours, theirs)


@SHAPES
def test_so_are_those_of_clients_side_by_side(outputs):
    kernels = np.stack([kernel_of(outputs), -kernel_of(outputs)])
    each = lambda f: jax.vmap(jax.grad(loss_by(f)), (0, None))(kernels, X)  # noqa: E731
    agree(*jax.jit(lambda: [each(f) for f in (product, jnp.matmul)])())


def gradient_reads_rows(model, params):
    """Whether the gradient of a model has the barriers of `product`."""
    return "optimization_barrier" in str(
        jax.make_jaxpr(jax.grad(lambda p: jnp.sum(model.forward(p, X, None) ** 2)))(params)
    )


def test_only_training_on_a_cpu_takes_them():
    """A model as it is, and one for a GPU, has XLA's own gradients."""
    plain = toy.model(16, features=40)
    flat = plain.init(jax.random.key(2))
    found = [
        gradient_reads_rows(model, model.unravel(flat))
        for model in (plain, transpose_kernels(plain, True), transpose_kernels(plain))
    ]
    assert found == [False, False, True]
