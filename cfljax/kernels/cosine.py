"""Cosine similarity with the zero-vector rule: 0 with every other vector, exactly 1 with itself."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from cfljax.kernels.blocks import invert, product, row_scale, sum_blocks


def cosine_matrix(a: jax.Array, b: jax.Array | None = None, mask: jax.Array | None = None) -> jax.Array:
    """f32[n, m] cosines between the rows of a f32[n, d] and of b f32[m, d]. Without b: of a with itself, symmetric, the
    diagonal exactly 1, for zero vectors too. Masked rows of a (mask bool[n]) are 0 throughout; a row that is not finite
    counts as a zero vector. Very long or short rows (1e30, 1e-30) lose no accuracy."""
    chex.assert_rank([a, b] if b is not None else [a], 2)
    if mask is not None:
        chex.assert_shape(mask, (a.shape[0],))
    scale = row_scale(a, mask)
    inverse = _inverse_norms(a, scale)
    if b is not None:
        b_scale = row_scale(b)
        plain = product(a, b, scale, b_scale) * inverse[:, None] * _inverse_norms(b, b_scale)[None, :]
        return jnp.clip(plain, -1.0, 1.0)
    gram = product(a, a, scale, scale)
    plain = jnp.clip((gram + gram.T) * (0.5 * (inverse[:, None] * inverse[None, :])), -1.0, 1.0)  # symmetric to the bit
    present = jnp.ones(a.shape[0], bool) if mask is None else mask
    self_ = jnp.eye(a.shape[0], dtype=bool)
    return jnp.where(self_, jnp.where(present, 1.0, 0.0)[:, None], plain)


def cosine_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """f32[n] cosine of each row of a f32[n, d] with the same row of b f32[n, d], or with the one vector b f32[d]; 0
    where either is zero or not finite."""
    chex.assert_rank(a, 2)
    b = jnp.broadcast_to(b, a.shape)
    left, right = row_scale(a), row_scale(b)
    usable = (left > 0) & (right > 0)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        x, y = (jax.lax.dynamic_slice_in_dim(v, start, size, axis=1) * s[:, None] for v, s in ((a, left), (b, right)))
        return jnp.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)])

    dot, xx, yy = sum_blocks(partial, a.shape[1], jnp.zeros((3, a.shape[0]), jnp.float32))
    cosine = dot / jnp.sqrt(jnp.where(usable, xx, 1.0)) / jnp.sqrt(jnp.where(usable, yy, 1.0))
    return jnp.where(usable, jnp.clip(cosine, -1.0, 1.0), 0.0)


def _inverse_norms(x: jax.Array, scale: jax.Array) -> jax.Array:
    def partial(start: jax.Array | int, size: int) -> jax.Array:
        cut = jax.lax.dynamic_slice_in_dim(x, start, size, axis=1) * scale[:, None]
        return jnp.square(jnp.where(scale[:, None] > 0, cut, 0.0)).sum(axis=1)

    return invert(jnp.sqrt(sum_blocks(partial, x.shape[1], jnp.zeros(x.shape[0], jnp.float32))))
