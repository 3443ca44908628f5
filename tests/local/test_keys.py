"""Keys are JAX's own, however they are computed."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys


def data(key):
    return np.asarray(jax.random.key_data(key))


def test_a_folded_key_is_that_of_jax():
    key = keys.root(7)
    for number in (0, 1, 2**31, 2**32 - 1, jnp.int32(-3), np.int64(12)):
        assert np.array_equal(
            data(keys.fold_in(key, number)),
            data(jax.random.fold_in(key, np.asarray(number).astype(np.uint32))),
        )
    named = jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(b"client")), 5)
    assert (
        np.array_equal(data(keys.fold(key, "client", 5)), data(named))
        and keys.fold(key, "client", 5).dtype == named.dtype
    )


def test_each_identity_has_the_key_that_it_has_alone():
    key, ids = keys.root(3), jnp.array([4, -1, 0, 2**30])
    each = keys.fold_each(key, "client", ids)
    by_jax = jax.vmap(
        lambda i: jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(b"client")), i)
    )(ids)
    assert each.shape == (4,) and np.array_equal(data(each), data(by_jax))
    runs = jax.vmap(lambda k: keys.fold_each(k, "client", ids))(jnp.stack([key, keys.root(4)]))
    assert np.array_equal(data(runs)[0], data(each)) and not np.array_equal(
        data(runs)[1], data(each)
    )


def test_drawn_numbers_are_those_of_jax():
    key = keys.root(11)
    with jax.threefry_partitionable(True):
        bits = jax.random.bits(key, (99,), jnp.uint32)
    order = np.argsort((np.asarray(bits) >> 11)[:70], kind="stable")
    assert np.array_equal(
        np.asarray(jax.jit(keys.permutation, static_argnums=2)(key, 70, 99))[:70], order
    )


def test_keys_of_another_generator_are_refused():
    with pytest.raises(ValueError, match="another generator"):
        keys.fold(jax.random.key(0, impl="rbg"), "client")


DRAWS = {
    "bits": (keys.bits, lambda key, length: jax.random.bits(key, (length,), jnp.uint32)),
    "uniform": (
        keys.uniform,
        lambda key, length: jax.random.uniform(key, (length,), jnp.float32, -1, 1),
    ),
    "normal": (keys.normal, lambda key, length: jax.random.normal(key, (length,), jnp.float32)),
    "signs": (
        lambda key, length: 1 - 2 * (keys.bits(key, length) >> 31).astype(jnp.float32),
        lambda key, length: jax.random.rademacher(key, (length,), jnp.float32),
    ),
}


@pytest.mark.parametrize("length", [1, 7, 4810])
def test_draws_are_those_of_jax_whatever_its_flags(length):
    several = jax.jit(lambda: jnp.stack([keys.root(11), keys.root(12)]))()

    @jax.jit
    def theirs(several):
        return {name: [each(key, length) for key in several] for name, (_, each) in DRAWS.items()}

    @jax.jit
    def ours(several):
        return {
            name: (
                each(several[0], length),
                jax.vmap(lambda key, draw=each: draw(key, length))(several),
            )
            for name, (each, _) in DRAWS.items()
        }

    with jax.threefry_partitionable(True):
        wanted = theirs(several)
    with jax.threefry_partitionable(False), jax.enable_x64(True):
        found = ours(several)
    for name, (alone, both) in found.items():
        assert both.dtype == wanted[name][0].dtype and np.array_equal(alone, wanted[name][0]), name
        assert np.array_equal(both, np.stack(wanted[name])), name
