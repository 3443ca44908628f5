"""A random projection of long vectors to short ones that keeps angles: the matrix follows from a seed and is never stored.

The projection is sparse: column i has one entry ±1, so a sketch costs a pass over the vector, whatever its length. A vector is cut
into blocks of as many numbers as a sketch has; each block gets signs of its own and is shuffled by a map j → (a j + b) mod m with a
odd, and the blocks are added up. Two numbers of different blocks then meet with probability 1/m, two of one block never.

Cosines and relative distances of sketches equal the vectors' up to a random error with standard deviation below 1/√m: 0.016
for the 4,096 numbers that methods use. Sums of sketches are sketches of sums.
"""

from __future__ import annotations

from cfljax import keys
from cfljax.lazy import chex, jax, jnp

SKETCH_SIZE = 4096  # Numbers in a sketch
Carry = tuple[jax.Array, tuple[jax.Array, jax.Array]]  # (sketches so far, the signs and the shuffle of the next block)


def sketch(x: jax.Array, size: int = SKETCH_SIZE, seed: int = 0) -> jax.Array:
    """f32[n, size]: a sketch of each row of x f32[n, d]; x itself if d ≤ size. A row that is not finite gives a sketch that is not
    finite, and does not affect other rows. `size`: a power of two."""
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

    # A block's random numbers are drawn one iteration ahead and carried; otherwise XLA draws them again for every row.
    begin = (jnp.zeros((n, size), jnp.float32), _draw(keys.fold_in(key, 0), size))
    total, drawn = jax.lax.fori_loop(0, d // size, one, begin)
    return add(x[:, d // size * size :], total, drawn)


def _draw(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """(f32[size] random signs ±1, i32[size] a shuffle of 0 … size − 1)."""
    drawn = keys.bits(key, size + 2)
    a, b = drawn[-1] | 1, drawn[-2]
    slots = (a * jnp.arange(size, dtype=jnp.uint32) + b) & (size - 1)  # wraps around at 2³², of which size is a divisor
    return 1.0 - 2.0 * (drawn[:size] & 1).astype(jnp.float32), slots.astype(jnp.int32)
