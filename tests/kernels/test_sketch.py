"""Sketches keep angles and distances, and their error is that of theory."""

import re

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.kernels.cosine import SKETCH_SIZE, _draw, cosine_matrix, sketch

made = jax.jit(sketch, static_argnums=(1, 2))
cosines = jax.jit(cosine_matrix)


def vectors(n=40, d=20_000, seed=0):
    """Related in pairs, of very different norms, some of them sparse or periodic: what updates are
    like."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + 2 * rng.normal(size=(4, d))[np.arange(n) % 4]
    x[-12:-4] *= np.arange(d) % 64 < 3
    x[-4:] *= rng.random((4, d)) < 0.001
    return (x * 10.0 ** rng.uniform(-6, 6, (n, 1))).astype(np.float32)


def test_errors_of_cosines_are_below_one_over_the_root_of_the_size():
    x = vectors()
    off = ~np.eye(len(x), dtype=bool)
    error = (np.asarray(cosines(made(x))) - np.asarray(cosines(x)))[off]
    limit = 1 / np.sqrt(SKETCH_SIZE)  # 0.0156
    assert (
        0.2 * limit < np.sqrt(np.mean(error**2)) < limit
    )  # no better than it can be: it is a projection
    assert np.abs(error).max() < 4.5 * limit and abs(error.mean()) < 0.5 * limit


def test_errors_of_norms_and_distances():
    x = vectors()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    short = np.asarray(made(x))
    for a, b in ((x, short), (x[1:] - x[:-1], short[1:] - short[:-1])):
        ratio = np.linalg.norm(b, axis=1) / np.linalg.norm(a, axis=1)
        assert np.abs(ratio - 1).max() < 4.5 / np.sqrt(2 * SKETCH_SIZE)


def test_a_sketch_is_linear_and_depends_on_no_other_row():
    x = vectors(6)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    whole = np.asarray(made(x))
    np.testing.assert_allclose(
        np.asarray(made(x.sum(axis=0)[None]))[0], whole.sum(axis=0), atol=1e-6
    )
    broken = x.copy()
    broken[2, 5], broken[3, 7] = np.nan, np.inf
    again = np.asarray(made(broken))
    assert (
        not np.isfinite(again[2:4]).all(axis=1).any()
        and (again[[0, 1, 4, 5]] == whole[[0, 1, 4, 5]]).all()
    )


def test_short_vectors_stay_as_they_are_and_seeds_differ():
    x = vectors(4, SKETCH_SIZE)
    assert (np.asarray(made(x)) == x).all()
    seeds = [np.asarray(cosines(made(x, 64, seed))) for seed in (1, 2)]
    assert not np.allclose(*seeds, atol=0.01)


def test_draws_are_the_same_however_jax_is_set():
    with jax.threefry_partitionable(True):
        bits = np.asarray(jax.random.bits(jax.random.key(3), (18,)))
    for flag in (True, False):
        with jax.threefry_partitionable(flag):
            signs, places = map(np.asarray, jax.jit(lambda key: _draw(key, 16))(jax.random.key(3)))
        assert np.array_equal(signs, 1.0 - 2.0 * (bits[:16] & 1)) and sorted(
            places.tolist()
        ) == list(range(16))


def test_the_projection_is_never_stored():
    """20,000 × 4,096 numbers would be 328 MB."""
    program = jax.jit(sketch).lower(jnp.zeros((4, 20_000))).compile()
    assert program.memory_analysis().temp_size_in_bytes < 1e6


def test_random_signs_are_drawn_once_for_all_rows():
    """Drawn where they are used, XLA computes their random words again for each row: forty times as
    slow for a hundred rows."""
    program = jax.jit(lambda x: sketch(x, 64)).lower(jnp.zeros((24, 1_000))).compile().as_text()
    kernels = [
        text
        for text in re.findall(r"^%fused.*?^}", program, re.MULTILINE | re.DOTALL)
        if "shift-left" in text
    ]
    assert kernels and not any("f32[24,64]" in text for text in kernels)
