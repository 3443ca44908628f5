"""Convolutions by matrix products: the window under a kernel at each position is a row of a matrix. For the clients of a round,
each with its own kernel, on a GPU, where XLA's own convolutions of several kernels go one after another. On an H200 these took
1.1 to 8.2 times as long."""

from __future__ import annotations

from cfljax.lazy import custom_vjp, custom_vmap, jax, jnp
from cfljax.models.blocks import convolve_by_xla, padding_of, shift_images


@custom_vjp(nondiff_argnums=(2,))
def convolve_windows(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Convolve f32[B, H, W, inputs] with f32[k, k, inputs, outputs] -> f32[B, ⌈H / stride⌉, ⌈W / stride⌉, outputs]. If its gradient
    is wanted, or several x have a kernel each, by matrix products, otherwise by XLA."""
    value = custom_vmap()(lambda x, kernel: convolve_by_xla(x, kernel, (stride, stride), padding_of(kernel)))

    def many(number: int, several: list[bool], x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, bool]:
        if all(several):
            return jax.vmap(lambda x, kernel: _multiply_windows(x, kernel, stride))(x, kernel), True
        if several[0]:  # more images of one kernel
            made = value(x.reshape(-1, *x.shape[2:]), kernel)
            return made.reshape(number, -1, *made.shape[1:]), True
        made = value(x, jnp.moveaxis(kernel, 0, 3).reshape(*kernel.shape[1:4], -1))  # more outputs of one x
        return jnp.moveaxis(made.reshape(*made.shape[:3], number, -1), 3, 0), True

    value.def_vmap(many)
    return value(x, kernel)


def _gradients(stride: int, kept: tuple[jax.Array, jax.Array], change: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    windows, exact = _gather_windows(x, kernel, stride), jax.ShapeDtypeStruct(x.shape, jnp.float32)
    of_kernel = windows.reshape(-1, windows.shape[-1]).T @ change.reshape(-1, change.shape[-1])
    factors = kernel.reshape(-1, kernel.shape[-1]).T
    of_windows = (change @ factors).astype(jnp.float32)  # of which many are added up
    (of_x,) = jax.linear_transpose(lambda x: _gather_windows(x, kernel, stride), exact)(of_windows)
    return of_x.astype(x.dtype), of_kernel.reshape(kernel.shape)


convolve_windows.defvjp(lambda x, kernel, stride: (_multiply_windows(x, kernel, stride), (x, kernel)), _gradients)


def _gather_windows(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Gather the windows: f32[B, H, W, inputs] -> f32[B, ⌈H / stride⌉, ⌈W / stride⌉, k · k · inputs]."""
    return jnp.concatenate(shift_images(x, kernel, stride), -1)


def _multiply_windows(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return _gather_windows(x, kernel, stride) @ kernel.reshape(-1, kernel.shape[-1])
