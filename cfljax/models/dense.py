"""Products of a mini-batch with a kernel whose gradients are products that a CPU is fast at."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from cfljax.lazy import custom_jvp, jax, jnp

MAX_THIN_OUTPUTS = 32
"""Kernels of at most this many outputs are thin. Measured (784 inputs): transposed halves the time at 20, not at 64."""
_by_rows: contextvars.ContextVar[bool] = contextvars.ContextVar("by_rows", default=False)


def is_thin(shape: tuple[int, ...]) -> bool:
    """Return True if a kernel of this shape is stored transposed while a client trains (`local.turned`)."""
    return len(shape) == 2 and shape[1] <= min(MAX_THIN_OUTPUTS, shape[0] // 4)


@contextlib.contextmanager
def by_rows() -> Iterator[None]:
    """Compute gradients of dense layers from rows in memory: XLA's product over first axes takes a CPU half as long again."""
    token = _by_rows.set(True)
    try:
        yield
    finally:
        _by_rows.reset(token)


def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiply x f32[B, inputs] by f32[inputs, outputs], in the form that `by_rows` sets."""
    return product(x, kernel) if _by_rows.get() else x @ kernel


@custom_jvp()
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiply x f32[B, inputs] by f32[inputs, outputs]."""
    return x @ kernel


@product.defjvp
def _(primals: tuple[jax.Array, jax.Array], changes: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x, kernel), (dx, dkernel) = primals, changes
    # transposed, this is the gradient of the kernel: the barriers keep XLA from undoing the turns, and so from the slow product
    if is_thin(kernel.shape):
        change = jax.lax.optimization_barrier(jnp.matmul(dkernel.T, x.T)).T
    else:
        change = jax.lax.dot_general(jax.lax.optimization_barrier(x.T), dkernel, (((0,), (0,)), ((), ())))
    return x @ kernel, dx @ kernel + change
