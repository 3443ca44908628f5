"""Cosine similarity with the zero-vector rule: 0 with every other vector, exactly 1 with itself;
and MADC, the mean absolute difference between two clients' cosines with all other clients (FedGroup
eq. 7)."""

from __future__ import annotations

from cfljax import keys
from cfljax.kernels.blocks import invert, product, row_scale, sum_blocks
from cfljax.lazy import chex, jax, jnp

TERMS_PER_PASS = 8
"""The number of terms z that are added in one pass over the n × n sums, so that these are read and
written less often."""


def cosine_matrix(
    a: jax.Array, b: jax.Array | None = None, mask: jax.Array | None = None
) -> jax.Array:
    """f32[n, m] cosines between the rows of a f32[n, d] and of b f32[m, d]. Without b: of a with
    itself, symmetric, the diagonal exactly 1, for zero vectors too. Masked rows of a (mask bool[n])
    are 0 throughout; a row that is not finite counts as a zero vector. Very long or short rows
    (1e30, 1e-30) lose no accuracy."""
    chex.assert_rank([a, b] if b is not None else [a], 2)
    if mask is not None:
        chex.assert_shape(mask, (a.shape[0],))
    scale = row_scale(a, mask)
    inverse = _inverse_norms(a, scale)
    if b is not None:
        b_scale = row_scale(b)
        plain = (
            product(a, b, scale, b_scale) * inverse[:, None] * _inverse_norms(b, b_scale)[None, :]
        )
        return jnp.clip(plain, -1.0, 1.0)
    gram = product(a, a, scale, scale)
    plain = jnp.clip(
        (gram + gram.T) * (0.5 * (inverse[:, None] * inverse[None, :])), -1.0, 1.0
    )  # symmetric to the bit
    present = jnp.ones(a.shape[0], bool) if mask is None else mask
    self_ = jnp.eye(a.shape[0], dtype=bool)
    return jnp.where(self_, jnp.where(present, 1.0, 0.0)[:, None], plain)


def cosine_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """f32[n] cosine of each row of a f32[n, d] with that of b f32[n, d], or with b f32[d]; 0 where
    one is zero or not finite."""
    chex.assert_rank(a, 2)
    b = jnp.broadcast_to(b, a.shape)
    left, right = row_scale(a), row_scale(b)
    usable = (left > 0) & (right > 0)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        x, y = (
            jax.lax.dynamic_slice_in_dim(v, start, size, axis=1) * s[:, None]
            for v, s in ((a, left), (b, right))
        )
        return jnp.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)])

    dot, xx, yy = sum_blocks(partial, a.shape[1], jnp.zeros((3, a.shape[0]), jnp.float32))
    cosine = dot / jnp.sqrt(jnp.where(usable, xx, 1.0)) / jnp.sqrt(jnp.where(usable, yy, 1.0))
    return jnp.where(usable, jnp.clip(cosine, -1.0, 1.0), 0.0)


def _inverse_norms(x: jax.Array, scale: jax.Array) -> jax.Array:
    def partial(start: jax.Array | int, size: int) -> jax.Array:
        cut = jax.lax.dynamic_slice_in_dim(x, start, size, axis=1) * scale[:, None]
        return jnp.square(jnp.where(scale[:, None] > 0, cut, 0.0)).sum(axis=1)

    return invert(jnp.sqrt(sum_blocks(partial, x.shape[1], jnp.zeros(x.shape[0], jnp.float32))))


def madc(cosines: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """f32[n, n] of cosines f32[n, n]: the mean over z ≠ i, j of |M_iz − M_jz| (eq. 7), without an n
    × n × n array. 0 with itself, with masked clients (mask bool[n]), and where there is no third
    client."""
    n = cosines.shape[0]
    chex.assert_shape(cosines, (n, n))
    present = jnp.ones(n, bool) if mask is None else mask
    chex.assert_shape(present, (n,))
    rows = jnp.where(present[:, None] & present[None, :], cosines, 0.0)
    whole = _distances(rows)
    diagonal = jnp.diagonal(rows)
    itself = jnp.abs(diagonal[:, None] - rows.T) + jnp.abs(
        rows - diagonal[None, :]
    )  # the terms z = i and z = j
    others = present.sum() - 2
    mean = jnp.maximum(whole - itself, 0.0) / jnp.maximum(others, 1)  # eq. 7
    counted = present[:, None] & present[None, :] & ~jnp.eye(n, dtype=bool) & (others > 0)
    return jnp.where(counted, mean, 0.0)


def _distances(rows: jax.Array) -> jax.Array:
    """f32[n, n] Σ_z |M_iz − M_jz| of M f32[n, n]. All n² sums are built up together, so that no
    axis is summed over."""
    n = rows.shape[0]
    columns = jnp.pad(rows.T, ((0, -n % TERMS_PER_PASS), (0, 0))).reshape(-1, TERMS_PER_PASS, n)

    def add(sums: jax.Array, block: jax.Array) -> tuple[jax.Array, None]:
        for column in block:
            sums = sums + jnp.abs(column[:, None] - column[None, :])
        return sums, None

    return jax.lax.scan(add, jnp.zeros((n, n), jnp.float32), columns)[0]


SKETCH_SIZE = 4096  # Numbers in a sketch
Carry = tuple[
    jax.Array, tuple[jax.Array, jax.Array]
]  # (sketches so far, the signs and the shuffle of the next block)


def sketch(x: jax.Array, size: int = SKETCH_SIZE, seed: int = 0) -> jax.Array:
    """f32[n, size]: a sketch of each row of x f32[n, d]; x itself if d ≤ size. A row that is not
    finite gives a sketch that is not finite, and does not affect other rows. `size`: a power of
    two. Cosines and relative distances are the rows', up to a deviation below 1/√size. Each number
    of a row goes, with a random sign, to one place: blocks of `size` numbers are shuffled by maps j
    → (a j + b) mod size, and added up."""
    chex.assert_rank(x, 2)
    if size < 1 or size & (size - 1):
        raise ValueError(f"the numbers in a sketch are a power of two, not {size}")
    n, d = x.shape
    if d <= size:
        return x
    key = keys.fold(keys.root(seed), "sketch")

    def add(cut: jax.Array, total: jax.Array, drawn: tuple[jax.Array, jax.Array]) -> jax.Array:
        signs, slots = drawn
        return total + jnp.pad(cut, ((0, 0), (0, size - cut.shape[1])))[:, slots] * signs

    def one(block: jax.Array, carry: Carry) -> Carry:
        cut = jax.lax.dynamic_slice_in_dim(x, block * size, size, axis=1)
        return add(cut, *carry), _draw(keys.fold_in(key, block + 1), size)

    # A block's random numbers are drawn one iteration ahead and carried; otherwise XLA draws them
    # again for every row.
    begin = (jnp.zeros((n, size), jnp.float32), _draw(keys.fold_in(key, 0), size))
    total, drawn = jax.lax.fori_loop(0, d // size, one, begin)
    return add(x[:, d // size * size :], total, drawn)


def _draw(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """(f32[size] random signs ±1, i32[size] a shuffle of 0 … size − 1)."""
    drawn = keys.bits(key, size + 2)
    a, b = drawn[-1] | 1, drawn[-2]
    slots = (a * jnp.arange(size, dtype=jnp.uint32) + b) & (
        size - 1
    )  # wraps around at 2³², of which size is a divisor
    return 1.0 - 2.0 * (drawn[:size] & 1).astype(jnp.float32), slots.astype(jnp.int32)
