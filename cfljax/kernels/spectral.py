"""Leading singular directions of many long vectors without a d × d matrix, and FedGroup's EDC
embedding from them."""

from __future__ import annotations

from typing import NamedTuple

from cfljax import keys
from cfljax.kernels.blocks import HIGHEST, combine, invert, product, usable_rows
from cfljax.kernels.cosine import cosine_matrix
from cfljax.lazy import chex, jax, jnp

# `how = "auto"` takes the exact way up to this many multiplications for the Gram matrix
GRAM_LIMIT = 4e10
# Directions that are iterated beside those that are asked for, so that the latter converge
EXTRA_DIRECTIONS = 10
# The number of directions is rounded up to a multiple of this: a product with 32 long vectors takes
# hardly longer than with 13
LANES = 32
# The sketch has this many columns for each row of the data
SKETCH_FACTOR = 4
SKETCH_PASSES = 4
# Directions whose singular value is below this share of the largest count as rounding errors, and
# become zero
NOISE_LEVEL = 3e-6
# An eigenvalue below this in the Gram matrix of unit vectors counts as linear dependence
DEPENDENT_EIGENVALUE = 1e-5
# Rows whose sums of squares lie between these need no scaling by their largest entry
SAFE_SQUARES = (1e-12, 1e24)


def leading_directions(
    x: jax.Array,
    m: int,
    mask: jax.Array | None = None,
    how: str = "auto",
    passes: int | jax.Array = 1,
) -> tuple[jax.Array, jax.Array]:
    """Find the leading right singular vectors of x, which are the left ones of xᵀ.

    A start is refined by rounds of subspace iteration on x itself, and ends with the projection of
    x on it, so that small singular values keep their digits. Each further pass brings the squared
    ratio of the singular values beyond the first thirty-two to the m-th in accuracy.

    Args:
      x: f32[n, d].
      m: The number of directions.
      mask: bool[n] which rows count; None: all.
      how: `"gram"` starts from the eigenvectors of the smaller Gram matrix; `"randomised"` (for
        many long rows) from the eigenvectors of a sketch with a few thousand columns, each the sum
        of many columns of x with random signs; `"auto"` decides by size.
      passes: The rounds of subspace iteration.

    Returns:
      f32[m, d] orthonormal rows, strongest first, zero rows where there are fewer than m, each with
      a positive largest entry; and f32[m] the singular values.
    """
    chex.assert_rank(x, 2)
    n, d = x.shape
    if how not in ("auto", "gram", "randomised"):
        raise ValueError(f'directions by "{how}": must be "auto", "gram" or "randomised"')
    r = min(-(-(m + EXTRA_DIRECTIONS) // LANES) * LANES, n, d)
    data, unit = _prepare(x, mask)
    exact = how == "gram" or (how == "auto" and n * d * min(n, d) <= GRAM_LIMIT)
    basis = _gram_start(data, r) if exact else _sketch_start(data, r)
    basis = jax.lax.fori_loop(0, passes, lambda _, w: _pass(data, w), basis)
    # r × d: the data in the basis
    inside = _mix(basis.T, data)
    rows = _orthonormalise(inside)
    _, values, turn = jnp.linalg.svd(jnp.matmul(inside, rows.T, precision=HIGHEST))
    k = min(m, r)
    rows = jnp.matmul(turn[:k], rows, precision=HIGHEST)
    real = values[:k] > NOISE_LEVEL * values[:1]
    # A singular vector has no sign of its own; which one SVD returns depends on the machine
    top = jnp.take_along_axis(rows, jnp.abs(rows).argmax(axis=1)[:, None], axis=1)
    rows = jnp.where(real[:, None], rows * jnp.where(top < 0, -1.0, 1.0), 0.0)
    values = jnp.where(real, values[:k] * unit, 0.0)
    return jnp.pad(rows, ((0, m - k), (0, 0))), jnp.pad(values, (0, m - k))


def edc_embedding(
    delta: jax.Array, m: int, mask: jax.Array | None = None, how: str = "auto"
) -> jax.Array:
    """Return f32[n, m] the cosines between each update of delta f32[n, d] and the m leading
    directions of all of them: the space in which FedGroup's cold start runs K-means++. Zero updates
    and masked rows are 0."""
    return cosine_matrix(delta, leading_directions(delta, m, mask, how)[0], mask)


def edc_between(embedding: jax.Array) -> jax.Array:
    """Return f32[n, n] EDC(i, j): the Euclidean distance of the embeddings f32[n, m] of two updates
    over m (eq. 8)."""
    square = jnp.square(embedding[:, None, :] - embedding[None, :, :]).sum(axis=2)
    # eq. 8
    return jnp.sqrt(square) / embedding.shape[1]


class _Data(NamedTuple):
    """The rows and their scales."""

    # f32[n, d]
    x: jax.Array
    # f32[n] 1 / unit; 0 for rows that are left out
    scale: jax.Array
    # bool[]: whether all of x is finite. If so, the products use x without a cleaned copy, which
    # would cost more than they do
    finite: jax.Array


def _prepare(x: jax.Array, mask: jax.Array | None) -> tuple[_Data, jax.Array]:
    """Return the data, of x f32[n, d] and mask bool[n], and the unit f32[] by which they are
    divided."""
    n, d = x.shape
    squares = jnp.square(x).sum(axis=1)
    counted = jnp.ones(n, bool) if mask is None else mask
    top = jnp.where(counted, squares, 0.0).max(initial=0.0)
    plain = jnp.isfinite(squares).all() & (top > SAFE_SQUARES[0]) & (top < SAFE_SQUARES[1])

    def check_squares() -> tuple[jax.Array, jax.Array, jax.Array]:
        return counted, jnp.sqrt(top / d), jnp.array(True)

    def check_each_number() -> tuple[jax.Array, jax.Array, jax.Array]:
        usable = usable_rows(x, mask)
        unit = jnp.where(usable[:, None], jnp.abs(x), 0.0).max(initial=0.0)
        return usable, unit, jnp.isfinite(x).all()

    # Sums of squares are the fastest test for finite numbers; only if they overflow, underflow or
    # are not finite, each number is checked
    usable, unit, finite = jax.lax.cond(plain, check_squares, check_each_number)
    return _Data(x, jnp.where(usable, invert(unit), 0.0), finite), unit


def _gram_start(data: _Data, r: int) -> jax.Array:
    """Return f32[n, r]: a basis of the leading eigenvectors of x xᵀ, computed from xᵀ x if that is
    smaller."""
    n, d = data.x.shape
    if d < n:
        scaled = _scale(data)
        vectors = jnp.linalg.eigh(jnp.matmul(scaled.T, scaled, precision=HIGHEST))[1]
        return jnp.linalg.qr(_project(data, vectors[:, ::-1][:, :r].T))[0]
    return jnp.linalg.eigh(product(data.x, data.x, data.scale, data.scale))[1][:, ::-1][:, :r]


def _sketch_start(data: _Data, r: int) -> jax.Array:
    """Return f32[n, r]: approximate leading left singular vectors, taken from a sketch of the
    data."""
    n, d = data.x.shape
    # The key is no run's: the same updates have the same directions in each run
    key = keys.fold(keys.root(0), "spectral")
    columns = min(max(SKETCH_FACTOR * n, 4 * r), d)
    if columns < d:
        signs = 1 - 2 * (keys.bits(key, d) >> 31).astype(jnp.float32)
        small = _sketch(data, signs, columns)
    else:
        small = _scale(data)
    start = jnp.matmul(small, keys.normal(key, columns * r).reshape(columns, r), precision=HIGHEST)
    sketched = _Data(small, jnp.ones(n), jnp.array(True))
    basis = jax.lax.fori_loop(
        0, SKETCH_PASSES, lambda _, w: _pass(sketched, w), jnp.linalg.qr(start)[0]
    )
    # Strongest first
    turn = jnp.linalg.svd(_mix(basis.T, sketched), full_matrices=False)[0]
    return jnp.matmul(basis, turn, precision=HIGHEST)


def _sketch(data: _Data, signs: jax.Array, columns: int) -> jax.Array:
    """Return f32[n, columns]: column j is the sum of the scaled data's columns j, j + columns, …
    with their signs f32[d]."""
    n, d = data.x.shape

    def part(start: jax.Array | int, size: int) -> jax.Array:
        block = jax.lax.dynamic_slice_in_dim(data.x, start, size, axis=1) * data.scale[:, None]
        return jnp.where(
            data.scale[:, None] > 0, block * jax.lax.dynamic_slice_in_dim(signs, start, size), 0.0
        )

    whole = d // columns
    zero = jnp.zeros((n, columns), jnp.float32)
    total = jax.lax.fori_loop(
        0, whole, lambda i, sums: sums + part(i * columns, columns), zero, unroll=8
    )
    return total.at[:, : d % columns].add(part(whole * columns, d % columns))


def _pass(data: _Data, basis: jax.Array) -> jax.Array:
    """Return f32[n, r]: an orthonormal basis of x xᵀ basis, one step of subspace iteration."""
    return jnp.linalg.qr(_project(data, _mix(basis.T, data)))[0]


def _scale(data: _Data) -> jax.Array:
    return jnp.where(data.scale[:, None] > 0, data.x * data.scale[:, None], 0.0)


def _project(data: _Data, basis: jax.Array) -> jax.Array:
    """Return f32[n, r]: the products of the scaled rows with the basis f32[r, d]."""

    def plain() -> jax.Array:
        sums = jax.lax.dot_general(data.x, basis, (((1,), (1,)), ((), ())), precision=HIGHEST)
        return jnp.where(data.scale[:, None] > 0, sums * data.scale[:, None], 0.0)

    return jax.lax.cond(
        data.finite, plain, lambda: product(data.x, basis, data.scale, jnp.ones(basis.shape[0]))
    )


def _mix(weights: jax.Array, data: _Data) -> jax.Array:
    """Return f32[r, d]: the sums of the scaled rows of x with weights f32[r, n]."""

    def plain() -> jax.Array:
        # The first axis of both is summed over: this order of the product is faster
        scaled = (weights * data.scale).T
        return jax.lax.dot_general(scaled, data.x, (((0,), (0,)), ((), ())), precision=HIGHEST)

    return jax.lax.cond(data.finite, plain, lambda: combine(weights, data.x, data.scale))


def _orthonormalise(rows: jax.Array) -> jax.Array:
    """Return f32[r, d]: orthonormal rows with the same span; a row that depends on the others
    becomes zero."""
    # From the r × r products, which for long rows is much faster than Householder reflections; the
    # second pass removes the rounding errors that the products of the first leave
    for _ in range(2):
        rows = rows * invert(jnp.sqrt(jnp.square(rows).sum(axis=1)))[:, None]
        eigenvalues, vectors = jnp.linalg.eigh(
            jax.lax.dot_general(rows, rows, (((1,), (1,)), ((), ())), precision=HIGHEST)
        )
        factor = jnp.where(
            eigenvalues > DEPENDENT_EIGENVALUE,
            jax.lax.rsqrt(jnp.maximum(eigenvalues, DEPENDENT_EIGENVALUE)),
            0.0,
        )
        rows = jnp.matmul((vectors * factor).T, rows, precision=HIGHEST)
    return rows
