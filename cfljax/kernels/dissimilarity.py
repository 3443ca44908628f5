"""MADC: the mean absolute difference between two clients' cosines with all other clients (FedGroup eq. 7)."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

TOGETHER = 8
"""The number of terms z that are added in one pass over the n × n sums, so that these are read and written less often."""


def madc(cosines: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """f32[n, n] of cosines f32[n, n]: the mean over z ≠ i, j of |M_iz − M_jz| (eq. 7), without an n × n × n array. 0 with
    itself, with masked clients (mask bool[n]), and where there is no third client."""
    n = cosines.shape[0]
    chex.assert_shape(cosines, (n, n))
    present = jnp.ones(n, bool) if mask is None else mask
    chex.assert_shape(present, (n,))
    rows = jnp.where(present[:, None] & present[None, :], cosines, 0.0)
    whole = _distances(rows)
    diagonal = jnp.diagonal(rows)
    itself = jnp.abs(diagonal[:, None] - rows.T) + jnp.abs(rows - diagonal[None, :])  # the terms z = i and z = j
    others = present.sum() - 2
    mean = jnp.maximum(whole - itself, 0.0) / jnp.maximum(others, 1)  # eq. 7
    counted = present[:, None] & present[None, :] & ~jnp.eye(n, dtype=bool) & (others > 0)
    return jnp.where(counted, mean, 0.0)


def _distances(rows: jax.Array) -> jax.Array:
    """f32[n, n] Σ_z |M_iz − M_jz| of M f32[n, n]. All n² sums are built up together, so that no axis is summed over."""
    n = rows.shape[0]
    columns = jnp.pad(rows.T, ((0, -n % TOGETHER), (0, 0))).reshape(-1, TOGETHER, n)

    def add(sums: jax.Array, block: jax.Array) -> tuple[jax.Array, None]:
        for column in block:
            sums = sums + jnp.abs(column[:, None] - column[None, :])
        return sums, None

    return jax.lax.scan(add, jnp.zeros((n, n), jnp.float32), columns)[0]
