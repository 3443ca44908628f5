"""Convolutions with pooling on a CPU: a few images at a time, and by Winograd's products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.models import layers, winograd
from cfljax.models.layers import convolve
from tests.often import rarely

# Name -> images, kernel, padding
SHAPES = {
    "winograd": ((7, 8, 6, 32), (3, 3, 32, 40), "same"),
    "first layer": ((7, 8, 6, 3), (3, 3, 3, 4), "same"),
    "odd sides": ((5, 5, 7, 32), (3, 3, 32, 32), "same"),
    "valid": ((5, 9, 8, 2), (4, 4, 2, 3), "valid"),
}


@pytest.fixture(autouse=True)
def three_tiles(monkeypatch):
    """Two or three images at a time, so that no batch below is a whole number of tiles."""
    monkeypatch.setattr(winograd, "TILE_FLOATS", 3 * 4 * 8 * 6 * 40)
    monkeypatch.setattr(layers, "POOLED_TILE_FLOATS", 3 * 8 * 6 * 4)


def draw(shape, several=()):
    """Return images, a kernel, and the gradient of the pooled outputs."""
    images, kernel, padding = SHAPES[shape]
    lost = 0 if padding == "same" else kernel[0] - 1
    high, wide = ((side - lost) // 2 for side in images[1:3])
    rng = np.random.default_rng(0)
    made = [images, kernel, (images[0], high, wide, kernel[3])]
    return [rng.normal(size=(*several, *each)).astype(np.float32) for each in made]


def with_gradients(form, padding):
    def compute(x, kernel, pull):
        value, back = jax.vjp(lambda x, k: convolve(x, k, form, True, padding=padding), x, kernel)
        return value, *back(pull)

    return compute


def assert_close(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_xla(shape):
    padding = SHAPES[shape][2]
    both = jax.jit(lambda *of: [with_gradients(f, padding)(*of) for f in ("patches", "native")])
    assert_close(*both(*draw(shape)))


@pytest.mark.parametrize("shape", ["winograd", rarely("first layer")])
def test_models_and_clients_side_by_side_have_the_values_of_each_alone(shape):
    """Two clients with three kernels each, as runs of an engine with clients side by side have
    them; and all kernels on one batch, as losses of all clusters are computed."""
    x, kernel, pull = draw(shape, (2, 3))
    compute = with_gradients("patches", "same")
    losses = jax.vmap(lambda x, k: convolve(x, k, "patches", True), (None, 0))

    @jax.jit
    def all_ways(x, kernel, pull):
        together = [each[1, 2] for each in jax.vmap(jax.vmap(compute))(x, kernel, pull)]
        of_one_batch = losses(x[1, 2], kernel[1])[2]
        return together, of_one_batch, compute(x[1, 2], kernel[1, 2], pull[1, 2])

    together, of_one_batch, alone = all_ways(x, kernel, pull)
    assert_close(together, alone)
    assert_close([of_one_batch], alone[:1])


@pytest.mark.parametrize(
    ("images", "kernel", "dtype", "fits"),
    [
        ((8, 8, 32), (3, 3, 32, 32), jnp.float32, True),
        ((8, 8, 16), (3, 3, 16, 64), jnp.float32, False),
        ((8, 8, 64), (3, 3, 64, 16), jnp.float32, False),
        ((8, 7, 32), (3, 3, 32, 32), jnp.float32, False),
        ((8, 8, 32), (5, 5, 32, 32), jnp.float32, False),
        ((8, 8, 32), (3, 3, 32, 32), jnp.bfloat16, False),
    ],
)
def test_the_shape_of_a_layer_chooses_and_not_the_batch(images, kernel, dtype, fits, monkeypatch):
    chosen = []
    monkeypatch.setattr(
        winograd, "convolve_pooled", lambda x, kernel: chosen.append(len(x)) or x[:, ::2, ::2]
    )
    for batch in (1, 2, 50):
        given = (jax.ShapeDtypeStruct(s, dtype) for s in ((batch, *images), kernel))
        jax.eval_shape(lambda x, k: convolve(x, k, "patches", True), *given)
    assert chosen == ([1, 2, 50] if fits else [])


@pytest.mark.parametrize("shape", ["winograd", "first layer"])
def test_a_sample_has_its_numbers_in_every_batch(shape):
    """Also behind padding: a client's batch is filled up with samples that do not count."""
    x, kernel, pull = draw(shape)
    compute = with_gradients("patches", "same")
    padded = np.concatenate([x[:2], 9 * x[2:4]]), kernel, np.concatenate([pull[:2], 0 * pull[2:4]])

    @jax.jit
    def in_batches():
        whole, filled, two = (
            compute(x, kernel, pull),
            compute(*padded),
            compute(x[:2], kernel, pull[:2]),
        )
        return [each[:2] for each in whole[:2]], [each[:2] for each in filled[:2]], filled[2], two

    of_whole, of_filled, of_kernel, two = in_batches()
    assert_close(of_whole, two[:2])
    assert_close([*of_filled, of_kernel], two)
