"""Leading singular directions of many long vectors without a d × d matrix, and FedGroup's EDC embedding from them."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from cfljax import keys
from cfljax.kernels.blocks import HIGHEST, combine, invert, product, usable_rows
from cfljax.kernels.cosine import cosine_matrix

GRAM_LIMIT = 4e10
"""`how = "auto"` takes the exact way up to this many multiplications for the Gram matrix."""
EXTRA = 10
NOISE = 3e-6
"""Directions whose singular value is below this share of the largest are rounding, and become zero."""


class Directions(NamedTuple):
    """The m leading singular directions, strongest first."""

    rows: jax.Array
    """f32[m, d], orthonormal; zero rows where there are fewer than m directions."""
    values: jax.Array
    """f32[m] singular values."""


def leading_directions(x: jax.Array, m: int, mask: jax.Array | None = None, how: str = "auto") -> Directions:
    """The m leading right singular vectors of x f32[n, d] (the left ones of xᵀ). `how`: `"gram"` starts from the
    eigenvectors of the smaller Gram matrix, `"randomised"` from random combinations of the rows and three passes of
    subspace iteration (for many long rows), `"auto"` decides by size. Both end with a Rayleigh–Ritz step on x itself, so
    that small singular values keep their digits. The largest entry of a direction is positive."""
    chex.assert_rank(x, 2)
    n, d = x.shape
    r = min(m + EXTRA, n, d)
    peak = jnp.where(usable_rows(x, mask)[:, None], jnp.abs(x), 0.0).max(initial=0.0)
    scale = jnp.where(usable_rows(x, mask), invert(peak), 0.0)
    data = _Data(x, scale, jnp.isfinite(x).all())
    exact = how == "gram" or (how == "auto" and n * d * min(n, d) <= GRAM_LIMIT)
    if how not in ("auto", "gram", "randomised"):
        raise ValueError(f'directions by "{how}": must be "auto", "gram" or "randomised"')
    basis = _gram_start(x, scale, r) if exact else _random_start(data, r)
    basis = jax.lax.fori_loop(0, 1 if exact else 3, lambda _, q: _pass(data, q), basis)
    inside = _onto(data, basis)  # n × r
    _, values, turn = jnp.linalg.svd(inside, full_matrices=False)
    k = min(m, r, n)
    rows = jnp.matmul(turn[:k], basis, precision=HIGHEST)
    real = values[:k] > NOISE * values[:1]
    rows = jnp.where(real[:, None], rows * _sign(rows)[:, None], 0.0)
    found = jnp.where(real, values[:k] * peak, 0.0)
    return Directions(jnp.pad(rows, ((0, m - k), (0, 0))), jnp.pad(found, (0, m - k)))


def edc_embedding(delta: jax.Array, m: int, mask: jax.Array | None = None, how: str = "auto") -> jax.Array:
    """f32[n, m] cosines between each update of delta f32[n, d] and the m leading directions of all of them: the space in
    which FedGroup's cold start runs K-means++. Zero updates and masked rows are 0."""
    directions = leading_directions(delta, m, mask, how).rows
    return cosine_matrix(delta, directions, mask)


def edc(delta: jax.Array, m: int, mask: jax.Array | None = None, how: str = "auto") -> jax.Array:
    """f32[n, n] EDC(i, j): Euclidean distance of the embeddings over m (eq. 8)."""
    embedding = edc_embedding(delta, m, mask, how)
    square = jnp.square(embedding[:, None, :] - embedding[None, :, :]).sum(axis=2)
    return jnp.sqrt(square) / m  # eq. 8


def _gram_start(x: jax.Array, scale: jax.Array, r: int) -> jax.Array:
    n, d = x.shape
    if d < n:
        scaled = jnp.where(scale[:, None] > 0, x * scale[:, None], 0.0)
        return jnp.linalg.eigh(jnp.matmul(scaled.T, scaled, precision=HIGHEST))[1][:, ::-1][:, :r].T
    vectors = jnp.linalg.eigh(product(x, x, scale, scale))[1]
    return _orthonormal(combine(vectors[:, ::-1][:, :r].T, x, scale))


class _Data(NamedTuple):
    """The rows, and how to read them."""

    x: jax.Array
    scale: jax.Array
    """f32[n] 1 / peak; 0 for rows that are left out."""
    finite: jax.Array
    """bool[] all of x is: then it need not be copied to be cleaned, which would cost more than the products."""


def _onto(data: _Data, basis: jax.Array) -> jax.Array:
    """f32[n, r]: the scaled rows in the basis f32[r, d]."""

    def plain() -> jax.Array:
        sums = jax.lax.dot_general(data.x, basis, (((1,), (1,)), ((), ())), precision=HIGHEST)
        return jnp.where(data.scale[:, None] > 0, sums * data.scale[:, None], 0.0)

    return jax.lax.cond(data.finite, plain, lambda: product(data.x, basis, data.scale, jnp.ones(basis.shape[0])))


def _mixed(weights: jax.Array, data: _Data) -> jax.Array:
    """f32[r, d]: the scaled rows, weighted by f32[r, n]."""

    def plain() -> jax.Array:
        return jnp.matmul(weights * data.scale, data.x, precision=HIGHEST)

    return jax.lax.cond(data.finite, plain, lambda: combine(weights, data.x, data.scale))


def _random_start(data: _Data, r: int) -> jax.Array:
    each = keys.fold_each(keys.root(0), "spectral", jnp.arange(data.x.shape[0]))  # padding changes no row's draw
    draws = jax.vmap(lambda key: jax.random.normal(key, (r,)))(each)
    return _orthonormal(_mixed(draws.T, data))


def _pass(data: _Data, basis: jax.Array) -> jax.Array:
    return _orthonormal(_mixed(jnp.linalg.qr(_onto(data, basis))[0].T, data))


def _orthonormal(rows: jax.Array) -> jax.Array:
    return jnp.linalg.qr(rows.T)[0].T


def _sign(rows: jax.Array) -> jax.Array:
    top = jnp.take_along_axis(rows, jnp.abs(rows).argmax(axis=1)[:, None], axis=1)[:, 0]
    return jnp.where(top < 0, -1.0, 1.0)
