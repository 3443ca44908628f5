"""Products of a mini-batch with a kernel whose gradients are products that a CPU is fast at."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from cfljax.lazy import custom_jvp, jax, jnp

NARROW = 32
"""Kernels of layers with at most this number of outputs are thin. Measured with MNIST's 784 inputs: to keep them transposed halves
the time at 10 and 20 outputs, and saves nothing at 64."""
_by_rows: contextvars.ContextVar[bool] = contextvars.ContextVar("by_rows", default=False)


def thin(shape: tuple[int, ...]) -> bool:
    """Whether a kernel of this shape is kept transposed while a client trains (`local.turned`)."""
    return len(shape) == 2 and shape[1] <= min(NARROW, shape[0] // 4)


@contextlib.contextmanager
def by_rows() -> Iterator[None]:
    """In this context, the gradients of dense layers are computed from rows in memory: XLA's library for a CPU has a product of
    rows with columns, and takes another, which needs half as long again, where both sides are summed over their first axis."""
    token = _by_rows.set(True)
    try:
        yield
    finally:
        _by_rows.reset(token)


def times(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """f32[B, outputs]: x f32[B, inputs] times f32[inputs, outputs], in the form that `by_rows` asks for."""
    return product(x, kernel) if _by_rows.get() else x @ kernel


@custom_jvp()
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """f32[B, outputs]: x f32[B, inputs] times f32[inputs, outputs]."""
    return x @ kernel


@product.defjvp
def _(primals: tuple[jax.Array, jax.Array], changes: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x, kernel), (dx, dkernel) = primals, changes
    # transposed, this is the gradient of the kernel: the barriers keep XLA from undoing the turns, and so from the slow product
    if thin(kernel.shape):
        change = jax.lax.optimization_barrier(jnp.matmul(dkernel.T, x.T)).T
    else:
        change = jax.lax.dot_general(jax.lax.optimization_barrier(x.T), dkernel, (((0,), (0,)), ((), ())))
    return x @ kernel, dx @ kernel + change
