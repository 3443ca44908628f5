"""PACFL: clients compared by the principal angles between the subspaces of their data."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from cfljax.kernels.blocks import HIGHEST
from cfljax.kernels.spectral import leading_directions


def data_subspace(samples: jax.Array, p: int, mask: jax.Array | None = None) -> jax.Array:
    """f32[p, F] the p leading left singular vectors of the data (features × samples), as rows; samples f32[N, F], mask
    bool[N]. Zero rows where the data span fewer dimensions."""
    return leading_directions(samples, p, mask, "gram").rows


def principal_angles(a: jax.Array, b: jax.Array) -> jax.Array:
    """f32[p] degrees, largest first, between the row spaces of orthonormal a f32[p, F] and b f32[p, F]. Small angles
    come from their sines, which float32 resolves where cosines near 1 do not."""
    chex.assert_rank([a, b], 2)
    chex.assert_equal_shape([a, b])
    inner = jnp.matmul(a, b.T, precision=HIGHEST)
    cosines = jnp.linalg.svd(inner, compute_uv=False)[::-1]
    rest = b - jnp.matmul(inner.T, a, precision=HIGHEST)
    sines = jnp.linalg.svd(rest, compute_uv=False)
    small = cosines * cosines >= 0.5
    radians = jnp.where(small, jnp.arcsin(jnp.clip(sines, 0.0, 1.0)), jnp.arccos(jnp.clip(cosines, 0.0, 1.0)))
    return jnp.degrees(radians)


def angle_matrix(bases: jax.Array, how: str = "sum", mask: jax.Array | None = None) -> jax.Array:
    """f32[n, n] degrees between the subspaces bases f32[n, p, F]: the `"sum"` of the principal angles or the
    `"smallest"`. Symmetric; 0 with itself and with masked clients (mask bool[n])."""
    chex.assert_rank(bases, 3)
    if how not in ("sum", "smallest"):
        raise ValueError(f'angles by "{how}": must be "sum" or "smallest"')
    n = bases.shape[0]
    present = jnp.ones(n, bool) if mask is None else mask
    clean = jnp.where(present[:, None, None], bases, 0.0)

    def against_all(a: jax.Array) -> jax.Array:
        angles = jax.vmap(lambda b: principal_angles(a, b))(clean)
        return angles.sum(axis=1) if how == "sum" else angles.min(axis=1)

    each = jax.lax.map(against_all, clean)
    counted = present[:, None] & present[None, :] & ~jnp.eye(n, dtype=bool)
    return jnp.where(counted, (each + each.T) / 2, 0.0)
