"""Cosine similarity with the zero-vector rule: 0 with every other vector, exactly 1 with itself;
and MADC, the mean absolute difference between two clients' cosines with all other clients (FedGroup
eq. 7)."""

from __future__ import annotations

from cfljax import keys
from cfljax.kernels.blocks import invert, product, row_scale, sum_blocks
from cfljax.lazy import chex, jax, jnp

# The number of terms z that are added in one pass over the n × n sums, so that these are read and
# written less often
TERMS_PER_PASS = 8


def cosine_matrix(
    a: jax.Array, b: jax.Array | None = None, mask: jax.Array | None = None
) -> jax.Array:
    """Return f32[n, m] the cosines between the rows of a f32[n, d] and of b f32[m, d]. Without b:
    of a with itself, symmetric, the diagonal exactly 1, for zero vectors too. Masked rows of a
    (mask bool[n]) are 0 throughout; a row that is not finite counts as a zero vector. Very long or
    short rows (1e30, 1e-30) lose no accuracy."""
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
    # The mean with the transpose is symmetric to the bit, which a product need not be; code that
    # reads one triangle or both must come to the same clusters
    plain = jnp.clip((gram + gram.T) * (0.5 * (inverse[:, None] * inverse[None, :])), -1.0, 1.0)
    present = jnp.ones(a.shape[0], bool) if mask is None else mask
    diagonal = jnp.eye(a.shape[0], dtype=bool)
    return jnp.where(diagonal, jnp.where(present, 1.0, 0.0)[:, None], plain)


def cosine_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return f32[n] the cosine of each row of a f32[n, d] with the same row of b f32[n, d], or with
    b f32[d]; 0 where one is zero or not finite."""
    chex.assert_rank(a, 2)
    b = jnp.broadcast_to(b, a.shape)
    left = row_scale(a)
    right = row_scale(b)
    usable = (left > 0) & (right > 0)

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        x = jax.lax.dynamic_slice_in_dim(a, start, size, axis=1) * left[:, None]
        y = jax.lax.dynamic_slice_in_dim(b, start, size, axis=1) * right[:, None]
        return jnp.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)])

    dot, xx, yy = sum_blocks(partial, a.shape[1], jnp.zeros((3, a.shape[0]), jnp.float32))
    cosine = dot / jnp.sqrt(jnp.where(usable, xx, 1.0)) / jnp.sqrt(jnp.where(usable, yy, 1.0))
    return jnp.where(usable, jnp.clip(cosine, -1.0, 1.0), 0.0)


def _inverse_norms(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return f32[n] 1 / ‖s · x‖ of the rows of x f32[n, d] with scales s f32[n]; 0 for zero
    rows."""

    def partial(start: jax.Array | int, size: int) -> jax.Array:
        block = jax.lax.dynamic_slice_in_dim(x, start, size, axis=1) * scale[:, None]
        return jnp.square(jnp.where(scale[:, None] > 0, block, 0.0)).sum(axis=1)

    return invert(jnp.sqrt(sum_blocks(partial, x.shape[1], jnp.zeros(x.shape[0], jnp.float32))))


def madc(cosines: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Return f32[n, n] the mean over z ≠ i, j of |M_iz − M_jz| (eq. 7) of cosines M f32[n, n],
    without an n × n × n array. 0 with itself, with masked clients (mask bool[n]), and where there
    is no third client."""
    n = cosines.shape[0]
    chex.assert_shape(cosines, (n, n))
    present = jnp.ones(n, bool) if mask is None else mask
    chex.assert_shape(present, (n,))
    # Masked columns are 0 in all rows, so their terms vanish
    rows = jnp.where(present[:, None] & present[None, :], cosines, 0.0)
    all_terms = _sum_differences(rows)
    diagonal = jnp.diagonal(rows)
    # The terms z = i and z = j
    own_terms = jnp.abs(diagonal[:, None] - rows.T) + jnp.abs(rows - diagonal[None, :])
    others = present.sum() - 2
    # eq. 7
    mean = jnp.maximum(all_terms - own_terms, 0.0) / jnp.maximum(others, 1)
    counted = present[:, None] & present[None, :] & ~jnp.eye(n, dtype=bool) & (others > 0)
    return jnp.where(counted, mean, 0.0)


def _sum_differences(rows: jax.Array) -> jax.Array:
    """Return f32[n, n] Σ_z |M_iz − M_jz| of M f32[n, n]. All n² sums are built up together, so that
    no axis is summed over."""
    n = rows.shape[0]
    columns = jnp.pad(rows.T, ((0, -n % TERMS_PER_PASS), (0, 0))).reshape(-1, TERMS_PER_PASS, n)

    def add(sums: jax.Array, block: jax.Array) -> tuple[jax.Array, None]:
        for column in block:
            sums = sums + jnp.abs(column[:, None] - column[None, :])
        return sums, None

    return jax.lax.scan(add, jnp.zeros((n, n), jnp.float32), columns)[0]


# How many numbers a sketch has
SKETCH_SIZE = 4096
# (sketches so far, the signs and the shuffle of the next block)
Carry = tuple[jax.Array, tuple[jax.Array, jax.Array]]


def sketch(x: jax.Array, size: int = SKETCH_SIZE, seed: int = 0) -> jax.Array:
    """Return f32[n, size] a sketch of each row of x f32[n, d]; x itself if d ≤ size.

    Cosines and relative distances of sketches are the rows' up to a deviation below 1/√size. A row
    that is not finite gives a sketch that is not finite, and does not affect other rows. Each
    number of a row is added, with a random sign, to one number of the sketch: blocks of `size`
    numbers are shuffled by maps j → (a j + b) mod size, and summed.

    Args:
      x: f32[n, d].
      size: A power of two.
      seed: The seed of the signs and shuffles; the same for all rows that are to be compared.
    """
    chex.assert_rank(x, 2)
    if size < 1 or size & (size - 1):
        raise ValueError(f"the numbers in a sketch are a power of two, not {size}")
    n, d = x.shape
    if d <= size:
        return x
    key = keys.fold(keys.root(seed), "sketch")

    def add(block: jax.Array, total: jax.Array, drawn: tuple[jax.Array, jax.Array]) -> jax.Array:
        signs, slots = drawn
        return total + jnp.pad(block, ((0, 0), (0, size - block.shape[1])))[:, slots] * signs

    def one(i: jax.Array, carry: Carry) -> Carry:
        block = jax.lax.dynamic_slice_in_dim(x, i * size, size, axis=1)
        return add(block, *carry), _draw(keys.fold_in(key, i + 1), size)

    # A block's random numbers are drawn one iteration ahead and carried; otherwise XLA draws them
    # again for every row.
    begin = (jnp.zeros((n, size), jnp.float32), _draw(keys.fold_in(key, 0), size))
    total, drawn = jax.lax.fori_loop(0, d // size, one, begin)
    return add(x[:, d // size * size :], total, drawn)


def _draw(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Draw f32[size] random signs ±1, and a shuffle i32[size] of 0 … size − 1."""
    drawn = keys.bits(key, size + 2)
    # An odd factor has no common divisor with a power of two: j → a j + b is one to one
    a = drawn[-1] | 1
    b = drawn[-2]
    # The product wraps around at 2³², of which size is a divisor
    slots = (a * jnp.arange(size, dtype=jnp.uint32) + b) & (size - 1)
    return 1.0 - 2.0 * (drawn[:size] & 1).astype(jnp.float32), slots.astype(jnp.int32)
