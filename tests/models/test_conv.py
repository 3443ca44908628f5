"""Convolutions, pooling, normalisation and augmentation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.models import build, layers
from cfljax.models.augment import Augmentation, make_evaluation, make_training
from cfljax.models.layers import convolve, local_response
from cfljax.models.pooling import pool_2_2, pool_3_2_same
from tests.often import rarely

pooled = jax.jit(pool_2_2)


def weights(model):
    return np.random.default_rng(0).normal(size=model.size).astype(np.float32) * 0.2


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("size", [rarely(1), 2, 3, rarely(5)])
def test_all_forms_of_convolution_agree_in_values_and_gradients(size, pooled, monkeypatch):
    rng = np.random.default_rng(size)
    out = (13, 4, 4, 4) if pooled else (13, 9, 8, 4)
    x, kernel, pull = (
        rng.normal(size=s).astype(np.float32) for s in [(13, 9, 8, 2), (size, size, 2, 4), out]
    )

    def both(form):
        value, back = jax.vjp(lambda x, kernel: convolve(x, kernel, form, pooled), x, kernel)
        return value, *back(pull)

    def patches(together, tiles):
        monkeypatch.setattr(
            layers, "GRADIENT_TILE_FLOATS", together * 9 * 8 * size * (2 + 4)
        )  # of thirteen images
        assert layers._count_gradient_tiles(13, 9 * 8 * size * 6, 0)[0] == tiles
        return both("patches")

    in_tiles = {1: 13, 4: 7, 13: 1}  # of seven by two one place stays free
    made = jax.jit(
        lambda: [both("native"), both("windows"), *(patches(*each) for each in in_tiles.items())]
    )
    native, *others = made()
    for other in others:
        for ours, theirs in zip(other, native, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("size", [1, 2, 5])
def test_without_padding_all_forms_agree_with_a_convolution_by_loops(size, monkeypatch):
    rng = np.random.default_rng(size)
    high, wide = 9 - size + 1, 8 - size + 1
    x, kernel, pull = (
        rng.normal(size=s).astype(np.float32)
        for s in [(5, 9, 8, 2), (size, size, 2, 4), (5, high, wide, 4)]
    )
    value, of_x, of_kernel = np.zeros(pull.shape), np.zeros(x.shape), np.zeros(kernel.shape)
    for i in range(high):
        for j in range(wide):
            window = x[:, i : i + size, j : j + size]
            value[:, i, j] = np.einsum("bijc,ijco->bo", window, kernel)
            of_kernel += np.einsum("bijc,bo->ijco", window, pull[:, i, j])
            of_x[:, i : i + size, j : j + size] += np.einsum("ijco,bo->bijc", kernel, pull[:, i, j])
    # three images at a time, so that the last tile is filled with zeros
    monkeypatch.setattr(layers, "GRADIENT_TILE_FLOATS", 3 * high * 8 * size * (2 + 4))

    def both(form):
        made, back = jax.vjp(
            lambda x, kernel: convolve(x, kernel, form, padding="valid"), x, kernel
        )
        return made, *back(pull)

    for found in jax.jit(lambda: [both(form) for form in ("patches", "native", "windows")])():
        for ours, theirs in zip(found, (value, of_x, of_kernel), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


def values_and_gradients(form, x, kernel, stride=1):
    value, back = jax.vjp(lambda x, kernel: convolve(x, kernel, form, stride=stride), x, kernel)
    return value, *back(jnp.cos(jnp.arange(value.size, dtype=jnp.float32)).reshape(value.shape))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pixels", [rarely(1), 2, rarely(4)])
def test_pixels_that_are_computed_together_have_the_values_of_each_alone(
    pixels, stride, monkeypatch
):
    rng = np.random.default_rng(0)
    x, kernel = (rng.normal(size=s).astype(np.float32) for s in [(3, 6, 16, 2), (3, 3, 2, 5)])
    monkeypatch.setattr(layers, "MAX_JOINED_OUTPUTS", 5 * pixels)
    made = jax.make_jaxpr(lambda: convolve(x, kernel, "patches", stride=stride))()
    assert f"window_strides=({stride}, {stride * pixels})" in str(made)
    both = jax.jit(
        lambda: [values_and_gradients(form, x, kernel, stride) for form in ("patches", "native")]
    )()
    for ours, native in zip(*both, strict=True):
        np.testing.assert_allclose(ours, native, atol=1e-5 * np.abs(native).max())


@pytest.mark.parametrize("form", ["patches", "windows"])
@pytest.mark.parametrize(
    "several", [(0, 0), pytest.param((None, 0), marks=pytest.mark.long), (0, None)]
)
def test_several_images_and_kernels_side_by_side_have_the_values_of_each_alone(several, form):
    rng = np.random.default_rng(0)
    x, kernel = (rng.normal(size=s).astype(np.float32) for s in [(3, 2, 6, 4, 2), (3, 3, 3, 2, 4)])
    x, kernel = (
        of if which is not None else of[0] for of, which in zip((x, kernel), several, strict=True)
    )
    one = lambda x, kernel: (convolve(x, kernel, form), *values_and_gradients(form, x, kernel, 2))  # noqa: E731
    found = jax.jit(jax.vmap(one, several))(x, kernel)
    for number in range(3):
        pick = (
            of if which is None else of[number]
            for of, which in zip((x, kernel), several, strict=True)
        )
        for ours, alone in zip(found, jax.jit(one)(*pick), strict=True):
            np.testing.assert_allclose(ours[number], alone, atol=1e-5)


def test_the_gradient_of_half_precision_images_is_added_up_in_float32():
    rng = np.random.default_rng(0)
    x, kernel = (
        jnp.asarray(rng.normal(size=s), jnp.bfloat16) for s in [(3, 9, 8, 2), (5, 5, 2, 4)]
    )
    pull = jnp.asarray(rng.normal(size=(3, 9, 8, 4)), jnp.bfloat16)

    def of_x(form, *of):
        return jax.vjp(lambda x: convolve(x, of[1], form), of[0])[1](of[2])[0].astype(jnp.float32)

    exact = of_x("native", *(each.astype(jnp.float32) for each in (x, kernel, pull)))
    off = {
        form: float(jnp.std(of_x(form, x, kernel, pull) - exact)) for form in ("native", "windows")
    }
    assert off["windows"] < 2 * off["native"]  # 3.2 times and more where it is added up in bfloat16


def test_a_gradient_has_a_derivative_of_its_own():
    rng = np.random.default_rng(0)
    x, kernel, along = (
        rng.normal(size=s).astype(np.float32) for s in [(2, 6, 4, 2), (3, 3, 2, 4), (3, 3, 2, 4)]
    )

    def bent(form):
        return jax.jvp(jax.grad(lambda k: jnp.sum(convolve(x, k, form) ** 3)), (kernel,), (along,))[
            1
        ]

    patches, windows, native = jax.jit(
        lambda: [bent(form) for form in ("patches", "windows", "native")]
    )()
    np.testing.assert_allclose(patches, native, atol=1e-5 * np.abs(native).max())
    np.testing.assert_allclose(windows, native, atol=1e-5 * np.abs(native).max())


def test_runs_with_clients_side_by_side_bend_their_gradients_too():
    rng = np.random.default_rng(0)
    x, kernel, along = (
        rng.normal(size=(2, 3, *s)).astype(np.float32)
        for s in [(2, 6, 4, 2), (3, 3, 2, 4), (3, 3, 2, 4)]
    )

    def bent(form):
        grad = lambda x, kernel: jax.grad(lambda k: jnp.sum(convolve(x, k, form) ** 3))(kernel)  # noqa: E731
        one = lambda x, kernel, along: jax.jvp(lambda k: grad(x, k), (kernel,), (along,))[1]  # noqa: E731
        return jax.vmap(jax.vmap(one))(x, kernel, along)

    windows, native = jax.jit(lambda: (bent("windows"), bent("native")))()
    np.testing.assert_allclose(windows, native, atol=1e-5 * np.abs(native).max())


@pytest.mark.parametrize(("platform", "convolutions"), [("cuda", (1, 0, 0)), ("tpu", (1, 2, 1))])
def test_on_a_gpu_clients_with_kernels_of_their_own_have_products_and_no_convolutions(
    platform, convolutions
):
    """Of one model on samples of many clients, of a client's step, and of many models each on its
    own samples."""
    x, kernel = jnp.ones((3, 2, 6, 4, 2)), jnp.ones((3, 3, 3, 2, 4))
    value = lambda x, kernel: convolve(x, kernel, "auto")  # noqa: E731
    step = jax.grad(lambda kernel, x: jnp.sum(value(x, kernel) ** 2))
    shared, own = jax.vmap(value, (0, None)), jax.vmap(value)
    made = [
        jax.jit(f).trace(*of)
        for f, of in ((shared, (x, kernel[0])), (jax.vmap(step), (kernel, x)), (own, (x, kernel)))
    ]
    texts = [each.lower(lowering_platforms=(platform,)).as_text() for each in made]
    assert tuple(text.count("stablehlo.convolution") for text in texts) == convolutions


@pytest.mark.parametrize("name", ["cnn", "cnn_cifar"])
def test_the_forms_share_parameters_and_agree_within_1e5(name):
    options = (
        {"channels": [3, 4], "dense": [6]}
        if name == "cnn"
        else {"channels": 3, "dense": [6, 5], "crop": 8}
    )
    patches, windows, native = (
        build(name, {**options, "conv": form}, (11, 10, 2), 3)
        for form in ("patches", "windows", "native")
    )
    np.testing.assert_array_equal(
        *jax.jit(lambda key: (patches.init(key), native.init(key)))(jax.random.key(0))
    )
    flat = weights(patches)
    x = np.random.default_rng(0).normal(size=(5, 11, 10, 2)).astype(np.float32)
    pull = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32) / 5

    def both(model):
        value, back = jax.vjp(lambda flat: model.forward(model.unravel(flat), x), flat)
        return value, back(pull)[0]

    for ours, wide, theirs in zip(
        *jax.jit(lambda: [both(model) for model in (patches, windows, native)])(), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        np.testing.assert_allclose(wide, theirs, atol=1e-5)


@pytest.mark.parametrize("side", [8, 9])
def test_pooling_takes_the_maximum_of_each_window(side):
    x = np.random.default_rng(0).normal(size=(2, side, side, 3)).astype(np.float32)
    half = side // 2
    plain = np.stack(
        [
            [x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((1, 2)) for j in range(half)]
            for i in range(half)
        ]
    )
    np.testing.assert_array_equal(pooled(x), np.moveaxis(plain, 2, 0))

    def window(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    np.testing.assert_array_equal(*jax.jit(lambda x: (pool_3_2_same(x), window(x)))(x))


@pytest.mark.parametrize("side", [4, 5])
def test_the_gradient_of_pooling_goes_to_the_first_of_the_largest(side):
    x = np.zeros((1, side, side, 1), np.float32)
    x[0, :2, 2:4, 0] = [[0, 2], [2, 1]]  # two equal ones; the other squares are flat
    wanted = np.zeros((side, side), np.float32)
    wanted[0, 0], wanted[0, 3], wanted[2, 0], wanted[2, 2] = 1, 2, 3, 4

    @jax.jit
    def both(x, pull):
        value, back = jax.vjp(pool_2_2, x)
        return value, back(pull)[0]

    value, gradient = map(
        np.asarray, both(x, np.arange(1, 5, dtype=np.float32).reshape(1, 2, 2, 1))
    )
    np.testing.assert_array_equal(value[0, :, :, 0], [[0, 2], [0, 0]])
    np.testing.assert_array_equal(gradient[0, :, :, 0], wanted)


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_number_that_is_none_is_not_lost_in_pooling(place):
    x = np.ones((1, 2, 2, 1), np.float32)
    x[(0, *place, 0)] = np.nan
    assert np.isnan(pooled(x)).all()


def test_local_response_is_that_of_a_plain_loop():
    x = np.random.default_rng(0).normal(size=(2, 1, 1, 12)).astype(np.float32) * 30
    plain = np.stack(
        [
            x[..., c] / (1 + 0.001 / 9 * (x[..., max(c - 4, 0) : c + 5] ** 2).sum(-1)) ** 0.75
            for c in range(12)
        ],
        axis=-1,
    )
    np.testing.assert_allclose(jax.jit(local_response)(x), plain, rtol=1e-5)


EVERYTHING = Augmentation(crop=6, flip=True, brightness=0.3, contrast=0.5, standardise=True)


def test_augmentation_does_not_depend_on_padding_behind():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 9, 8, 3)).astype(np.float32)
    garbage = np.concatenate([x, np.full((3, 9, 8, 3), 1e6, np.float32)])
    apply = jax.jit(make_training(EVERYTHING))
    np.testing.assert_array_equal(
        apply(jax.random.key(0), x), apply(jax.random.key(0), garbage)[:4]
    )


def test_crops_are_pieces_of_the_image_flipped_half_of_the_time():
    image = np.arange(64, dtype=np.float32).reshape(8, 8, 1)
    out = np.asarray(
        jax.jit(make_training(Augmentation(crop=6, flip=True)))(
            jax.random.key(0), np.stack([image] * 200)
        )
    )
    pieces = {(i, j): image[i : i + 6, j : j + 6] for i in range(3) for j in range(3)}
    seen, flips = set(), 0
    for x in out:
        match = [
            (p, f)
            for p, piece in pieces.items()
            for f in (0, 1)
            if np.array_equal(x, piece[:, ::-1] if f else piece)
        ]
        assert len(match) == 1
        seen.add(match[0][0])
        flips += match[0][1]
    assert seen == set(pieces)
    assert 70 < flips < 130


def test_brightness_adds_and_contrast_stretches_about_the_mean():
    image = np.random.default_rng(0).normal(size=(5, 5, 2)).astype(np.float32)
    x = np.stack([image] * 50)
    added = (
        np.asarray(jax.jit(make_training(Augmentation(brightness=0.3)))(jax.random.key(0), x)) - x
    )
    assert np.ptp(added, axis=(1, 2, 3)).max() < 1e-6
    assert 0.2 < added.max() <= 0.3
    assert -0.3 <= added.min() < -0.2
    stretched = np.asarray(jax.jit(make_training(Augmentation(contrast=0.5)))(jax.random.key(0), x))
    np.testing.assert_allclose(stretched.mean((1, 2)), x.mean((1, 2)), atol=1e-6)
    factor = stretched.std((1, 2)) / x.std((1, 2))
    np.testing.assert_allclose(factor[:, 0], factor[:, 1], rtol=1e-5)
    assert 0.5 <= factor.min() < 0.6
    assert 1.4 < factor.max() <= 1.5


def test_evaluation_takes_the_centre_and_draws_nothing():
    model = build("cnn_cifar", {"channels": 2, "dense": [3, 3], "crop": 6}, (8, 8, 1), 3)
    params = model.unravel(weights(model))
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)
    forward = jax.jit(model.forward)
    first = forward(params, x)
    around = x.copy()
    around[:, 0], around[:, :, 7] = 9, -9  # outside of the centre
    np.testing.assert_array_equal(first, forward(params, around))
    drawn = [forward(params, x, jax.random.key(k)) for k in (0, 1, 1)]
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[1], drawn[2])


def test_standardised_images_have_mean_zero_and_variance_one_and_flat_ones_are_zero():
    x = np.random.default_rng(0).normal(5, 3, size=(2, 8, 8, 3)).astype(np.float32)
    x[1] = 0.7
    out = np.asarray(jax.jit(make_evaluation(Augmentation(standardise=True)))(x))
    np.testing.assert_allclose([out[0].mean(), out[0].var()], [0, 1], atol=1e-5)
    assert np.abs(out[1]).max() < 0.02


@pytest.mark.parametrize("dense", [[4, 3], [4]])
def test_the_penalty_is_half_the_squares_of_the_hidden_dense_kernels(dense):
    model = build("cnn_cifar", {"channels": 2, "dense": dense, "crop": 8}, (8, 8, 1), 3)
    params = model.unravel(weights(model))
    kernels = [np.asarray(params[f"dense_{i}"]["kernel"], np.float64) for i in range(len(dense))]
    np.testing.assert_allclose(
        jax.jit(model.penalty)(params), 0.004 / 2 * sum((k**2).sum() for k in kernels), rtol=1e-5
    )
    assert (
        build(
            "cnn_cifar", {"channels": 2, "dense": [4, 3], "crop": 8, "decay": 0.0}, (8, 8, 1), 3
        ).penalty
        is None
    )
    assert build("cnn", {}, (8, 8), 3).penalty is None
