"""Random keys, derived only by name and identity, never by position in a split, so that padding,
order and batching of clients change no draw. Draws equal JAX's to the bit (with
threefry_partitionable, whatever the user's flags): on a CPU JAX draws words in a loop that copies
its arrays in each iteration, thirty kernels instead of five."""

from __future__ import annotations

import zlib

import numpy as np

from cfljax.lazy import jax, jit, jnp, lax

# The longest shuffle whose positions fit into the low bits of the random words by which they are
# sorted
SHORT_LENGTH = 1 << 10
# A word larger than any that is drawn
END_WORD = np.uint32(1 << 31)


def root(seed: int | np.ndarray | jax.Array) -> jax.Array:
    """Make the key of a run, or of each of several runs, equal to `jax.random.key(seed)` for seeds
    below 2³². The generator is named and its words are set here, so that a user's
    `jax_default_prng_impl` and `jax_random_seed_offset` cannot change results.
    """
    of = jnp if isinstance(seed, jax.Array) else np
    word = of.asarray(seed).astype(np.uint32)
    return jax.random.wrap_key_data(
        jnp.asarray(of.stack([of.zeros_like(word), word], -1)), impl="threefry2x32"
    )


def fold(key: jax.Array, name: str, *numbers: int | jax.Array) -> jax.Array:
    """`fold(key, "client", uid)`: the key for this purpose and these identities."""
    key = fold_in(key, zlib.crc32(name.encode()))
    for number in numbers:
        key = fold_in(key, number)
    return key


def fold_each(key: jax.Array, name: str, ids: jax.Array) -> jax.Array:
    """key[len(ids)]: one key per identity."""
    return fold_in(fold(key, name), ids)


def fold_in(key: jax.Array, number: int | jax.Array) -> jax.Array:
    """`jax.random.fold_in` of one key, also for an array of numbers. Keys must be of the generator
    that `root` names."""
    return _fold_in(
        key,
        number
        if isinstance(number, jax.Array)
        else jnp.asarray(np.asarray(number).astype(np.uint32)),
    )


@jit(inline=True)  # outside of jit one program instead of one for each operation
def _fold_in(key: jax.Array, number: jax.Array) -> jax.Array:
    number = number.astype(jnp.uint32)
    return jax.random.wrap_key_data(
        jnp.stack(_threefry(key, jnp.zeros_like(number), number), -1), impl="threefry2x32"
    )


@jit(static_argnums=1, inline=True)
def scores(key: jax.Array, name: str, ids: jax.Array) -> jax.Array:
    """u32[len(ids)] random bits, one number per identity, which do not depend on the other
    identities."""
    # A folded key is itself a draw of the generator
    return jax.random.key_data(fold_each(key, name, ids))[:, 0]


def permutation(key: jax.Array, count: jax.Array, length: int) -> jax.Array:
    """i32[length]: a shuffle of 0 … count − 1, then count … length − 1 in order. `length` is for
    padding: it does not change the shuffle. Positions are sorted by random numbers of 21 bits (the
    other bits are for `short_permutation`); positions with equal numbers keep their order, which
    happens to two positions with probability 5e-7."""
    where = jnp.arange(length, dtype=jnp.int32)
    bits = jnp.where(where < count, _draw(key, length), END_WORD)
    return jax.lax.sort((bits, where), num_keys=1, is_stable=True)[1]


def short_permutation(key: jax.Array, count: jax.Array, length: int) -> jax.Array:
    """Permute as `permutation` does, for at most SHORT_LENGTH positions: a CPU sorts single words
    in a fifth of the time that pairs take."""
    where = jnp.arange(length, dtype=jnp.uint32)
    words = jax.lax.sort(jnp.where(where < count, _draw(key, length), END_WORD) | where)
    return (words & jnp.uint32(SHORT_LENGTH - 1)).astype(jnp.int32)


def uniform(key: jax.Array, length: int) -> jax.Array:
    """f32[length]: random numbers in [−1, 1), as `jax.random.uniform` draws them."""
    return _unit(key, length) * 2 - 1


def normal(key: jax.Array, length: int) -> jax.Array:
    """f32[length]: normally distributed numbers, as `jax.random.normal` draws them."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    return np.float32(np.sqrt(2)) * lax.erf_inv(jnp.maximum(low, _unit(key, length) * 2 + low))


def bits(key: jax.Array, length: int) -> jax.Array:
    """u32[length]: random words, as `jax.random.bits` draws them."""
    places = jnp.arange(length, dtype=jnp.uint32)
    upper, lower = _threefry(key, jnp.zeros_like(places), places)
    return upper ^ lower


def _unit(key: jax.Array, length: int) -> jax.Array:
    """f32[length]: random numbers in [0, 1)."""
    # From one in [1, 2)
    return (
        lax.bitcast_convert_type((bits(key, length) >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1
    )


def _draw(key: jax.Array, length: int) -> jax.Array:
    """u32[length]: random multiples of SHORT_LENGTH below END_WORD, a prefix of which does not
    depend on `length`."""
    return (bits(key, length) >> 1) & jnp.uint32(END_WORD - SHORT_LENGTH)


@jit()
def _threefry(key: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 (Salmon et al., 2011) of the words (x, y), twenty rounds. On a CPU JAX computes
    it in a loop, which takes four times as long as one fused operation, and longer to compile.
    Written with jax.lax, which is traced in half of the time."""
    words = jax.random.key_data(key)
    if words.shape[-1] != 2:
        raise ValueError(
            'a key of another generator; use jax.random.key(seed, impl="threefry2x32")'
        )
    shape = jnp.broadcast_shapes(words.shape[:-1], x.shape)
    x, y, first, second = (
        jnp.broadcast_to(word, shape) for word in (x, y, words[..., 0], words[..., 1])
    )
    schedule = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = lax.add(x, first), lax.add(y, second)
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = lax.add(x, y)
            left, right = (
                lax.shift_left(y, np.uint32(turn)),
                lax.shift_right_logical(y, np.uint32(32 - turn)),
            )
            y = lax.bitwise_xor(x, lax.bitwise_or(left, right))
        x = lax.add(x, schedule[(block + 1) % 3])
        y = lax.add(lax.add(y, schedule[(block + 2) % 3]), np.uint32(block + 1))
    return x, y
