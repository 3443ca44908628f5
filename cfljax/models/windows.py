"""Convolutions by matrix products: all that lies under a kernel at a place is a row of a matrix. It is for the clients of a round,
each with its own kernel, on a GPU, where XLA's own convolutions of several kernels go one after another. On an H200 these took
1.1 to 8.2 times as long."""

from __future__ import annotations

from cfljax.lazy import custom_vjp, custom_vmap, jax, jnp
from cfljax.models.pixels import around, by_xla, shifted


@custom_vjp(nondiff_argnums=(2,))
def convolved(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """The convolution f32[B, ⌈H / stride⌉, ⌈W / stride⌉, outputs] of f32[B, H, W, inputs] and f32[k, k, inputs, outputs]. If its
    gradient is wanted, or several x have a kernel each, it is done by products, else by XLA."""
    value = custom_vmap()(lambda x, kernel: by_xla(x, kernel, (stride, stride), around(kernel)))

    def many(number: int, several: list[bool], x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, bool]:
        if all(several):
            return jax.vmap(lambda x, kernel: _by_products(x, kernel, stride))(x, kernel), True
        if several[0]:  # more images of one kernel
            made = value(x.reshape(-1, *x.shape[2:]), kernel)
            return made.reshape(number, -1, *made.shape[1:]), True
        made = value(x, jnp.moveaxis(kernel, 0, 3).reshape(*kernel.shape[1:4], -1))  # more outputs of one x
        return jnp.moveaxis(made.reshape(*made.shape[:3], number, -1), 3, 0), True

    value.def_vmap(many)
    return value(x, kernel)


def _backwards(stride: int, kept: tuple[jax.Array, jax.Array], change: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    windows, exact = _windows(x, kernel, stride), jax.ShapeDtypeStruct(x.shape, jnp.float32)
    of_kernel = windows.reshape(-1, windows.shape[-1]).T @ change.reshape(-1, change.shape[-1])
    factors = kernel.reshape(-1, kernel.shape[-1]).T
    of_windows = (change @ factors).astype(jnp.float32)  # of which many are added up
    (of_x,) = jax.linear_transpose(lambda x: _windows(x, kernel, stride), exact)(of_windows)
    return of_x.astype(x.dtype), of_kernel.reshape(kernel.shape)


convolved.defvjp(lambda x, kernel, stride: (_by_products(x, kernel, stride), (x, kernel)), _backwards)


def _windows(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """f32[B, H, W, inputs] -> f32[B, ⌈H / stride⌉, ⌈W / stride⌉, k · k · inputs]."""
    return jnp.concatenate(shifted(x, kernel, stride), -1)


def _by_products(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return _windows(x, kernel, stride) @ kernel.reshape(-1, kernel.shape[-1])
