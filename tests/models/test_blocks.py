"""Group normalisation, depthwise and strided convolutions, attention, and what the models of tokens
read."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.engine.metrics import METRICS
from cfljax.models import blocks, build
from cfljax.models.layers import convolve
from cfljax.models.starts import to_normal
from tests.often import rarely


def test_each_group_has_mean_zero_and_variance_one_before_it_is_stretched():
    rng = np.random.default_rng(0)
    x, scale, bias = (rng.normal(3, 2, size=s) for s in [(2, 4, 3, 6), (6,), (6,)])
    groups = x.reshape(2, 4, 3, 3, 2)
    normalised = (groups - groups.mean((1, 2, 4), keepdims=True)) / np.sqrt(
        groups.var((1, 2, 4), keepdims=True) + 1e-5
    )
    with jax.enable_x64(True):
        found = jax.jit(blocks.group_norm, static_argnums=3)(x, scale, bias, 3)
        np.testing.assert_allclose(found, normalised.reshape(x.shape) * scale + bias, atol=1e-10)


@pytest.mark.parametrize("most", [None, np.inf, 1.5])
def test_the_gradient_of_a_norm_is_that_of_its_steps(most):
    rng = np.random.default_rng(0)
    x, scale, bias, pull = (
        rng.normal(0.5, 2, size=s) for s in [(2, 4, 3, 6), (6,), (6,), (2, 4, 3, 6)]
    )

    def steps(x, scale, bias):
        groups = x.reshape(2, 4, 3, 3, 2)
        mean, variance = (of((1, 2, 4), keepdims=True) for of in (groups.mean, groups.var))
        y = ((groups - mean) / jnp.sqrt(variance + 1e-5)).reshape(x.shape) * scale + bias
        return y if most is None else jnp.clip(y, 0, most)

    def norm(*given):
        return blocks.group_norm(*given, 3, most)

    def with_gradients(of, *given):
        value, back = jax.vjp(of, *given)
        return value, *back(pull)

    with jax.enable_x64(True):
        ours, wanted = jax.jit(lambda *given: [with_gradients(of, *given) for of in (norm, steps)])(
            x, scale, bias
        )
        for each, plain in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(each, plain, atol=1e-10)


KINDS = {"depthwise": (1, 4), "narrower": (4, 3), "wider": (4, 5)}
"""Kind of a convolution of four channels → (inputs, outputs) of its kernel."""


@pytest.mark.parametrize("stride", [1, 2, rarely(3)])
@pytest.mark.parametrize("kind", KINDS)
def test_both_forms_agree_in_values_and_gradients_at_every_stride(kind, stride, monkeypatch):
    monkeypatch.setattr(
        blocks, "DEPTHWISE_TILE_FLOATS", 2 * 9 * 8 * 4
    )  # of three images; the last tile has a free place
    rng = np.random.default_rng(stride)
    of = blocks.depthwise if kind == "depthwise" else convolve
    x, kernel = (
        rng.normal(size=s).astype(np.float32) for s in [(3, 9, 8, 4), (3, 3, *KINDS[kind])]
    )
    pull = rng.normal(size=(3, -(-9 // stride), -(-8 // stride), KINDS[kind][1])).astype(np.float32)

    def both(form):
        value, back = jax.vjp(lambda x, kernel: of(x, kernel, form, stride=stride), x, kernel)
        return value, *back(pull)

    for native, *others in zip(
        *jax.jit(lambda: [both(form) for form in ("native", "patches", "windows")])(), strict=True
    ):
        for ours in others:
            np.testing.assert_allclose(ours, native, atol=1e-5 * np.abs(native).max())


def test_an_embedding_is_the_row_of_its_token_whatever_the_number_of_tokens(monkeypatch):
    table = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    ids = np.array([[0.0, 4.0, 2.0, 9.0]], np.float32)
    for few in (4, 5):
        monkeypatch.setattr(blocks, "MAX_ONE_HOT", few)
        np.testing.assert_array_equal(
            jax.jit(lambda: blocks.embed(ids, jnp.asarray(table)))()[0], table[[0, 4, 2, 4]]
        )


SMALL = {
    "char_lstm": {"width": 4, "embedding": 3, "layers": 1},
    "transformer": {"width": 4, "heads": 2, "depth": 1},
}


@pytest.mark.parametrize("name", SMALL)
def test_training_on_every_token_has_the_mean_loss_of_all_prefixes(name):
    model, rng, y = (
        build(name, SMALL[name] | {"predict": "every"}, (3,), 5), np.random.default_rng(0), np.array([1, 0, 4], np.int32),
    )  # fmt: skip
    params = model.unravel(rng.normal(size=model.size).astype(np.float32))
    x = rng.integers(5, size=(3, 3)).astype(np.float32)

    def of_prefix(params, end):
        """The losses of a model of the prefix alone."""
        short = build(name, SMALL[name], (end,), 5)
        cut = (
            params
            if name == "char_lstm"
            else params | {"embed_positions": params["embed_positions"][:end]}
        )
        return short.loss(
            short.forward(cut, x[:, :end]), y if end == 3 else x[:, end].astype(np.int32)
        )

    @jax.jit
    def outcomes(params):
        outputs = model.forward(params, x, jax.random.key(0)), model.forward(params, x)
        seen = [(model.loss(each, y), model.correct(each, y)) for each in outputs]
        return [of_prefix(params, end) for end in (1, 2, 3)], seen

    each, ((trained, right), (scored, also_right)) = outcomes(params)
    np.testing.assert_allclose(trained, np.mean(each, 0), rtol=1e-4)
    np.testing.assert_allclose(scored, each[-1], rtol=1e-4)  # scored on the last alone
    np.testing.assert_array_equal(right, also_right)


@pytest.mark.parametrize("name", SMALL)
def test_padding_is_no_token_to_predict(name):
    """A short text that is filled up in front has the loss of its own tokens, each from all before
    it."""

    def build_with(padding):
        return build(name, SMALL[name] | {"predict": "every", "padding": padding}, (4,), 5)

    rng, y = np.random.default_rng(0), np.array([1, 0], np.int32)
    x = np.array([[0, 0, 3, 2], [4, 1, 2, 2]], np.float32)
    params = rng.normal(size=build_with(0).size).astype(np.float32)

    def losses(model, params, key=None):
        return model.loss(model.forward(model.unravel(params), x, key), y)

    def of_token(params, position):  # of the first text, from the tokens before it
        cut = build(name, SMALL[name], (position,), 5)
        p = build(name, SMALL[name], (4,), 5).unravel(params)
        p = p if name == "char_lstm" else p | {"embed_positions": p["embed_positions"][:position]}
        return cut.loss(cut.forward(p, x[:1, :position]), x[:1, position].astype(np.int32))[0]

    @jax.jit
    def outcomes(params):
        key = jax.random.key(0)
        whole, without = (losses(build_with(padding), params, key) for padding in (-1, 0))
        scored = losses(build(name, SMALL[name], (4,), 5), params)
        return whole, without, scored[0] + of_token(params, 2) + of_token(params, 3)

    whole, without, summed = map(np.asarray, outcomes(params))
    np.testing.assert_allclose(without[1], whole[1], rtol=1e-6)
    np.testing.assert_allclose(without[0], summed / 3, rtol=1e-4)
    assert abs(without[0] - whole[0]) > 1e-3


def test_a_classifier_does_not_see_what_fills_up_a_sequence():
    model = build(
        "transformer",
        {"task": "class", "vocabulary": 9, "padding": 0, "width": 4, "heads": 2, "depth": 2},
        (6,),
        3,
    )
    params = model.unravel(np.random.default_rng(0).normal(size=model.size).astype(np.float32))
    forward, x = (
        jax.jit(model.forward),
        np.array([[3, 4, 5, 0, 0, 0], [3, 4, 5, 7, 0, 0]], np.float32),
    )
    before = np.asarray(forward(params, x))
    places = np.array(params["embed_positions"])
    places[3:, 0] += 1
    after = np.asarray(forward(params | {"embed_positions": places}, x))
    np.testing.assert_allclose(before[0], after[0], atol=1e-6)
    assert np.abs(before[1] - after[1]).max() > 1e-3
    assert np.isfinite(forward(params, np.zeros((2, 6), np.float32))).all()


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        rarely("mobilenet_v2", {"width": 0.05, "depth": 0.1, "dropout": 0.5}, (4, 4, 1)),
        ("vit_tiny", {"patch": 2, "width": 4, "depth": 1, "heads": 2, "dropout": 0.5}, (4, 4, 1)),
        ("transformer", {"width": 4, "depth": 1, "heads": 2, "dropout": 0.5}, (6,)),
        ("char_lstm", {"width": 4, "layers": 1, "dropout": 0.5}, (6,)),
    ],
)
def test_dropout_does_not_depend_on_padding_behind_and_is_of_training_alone(name, options, shape):
    model = build(name, options, shape, 3)
    params = model.unravel(np.random.default_rng(0).normal(size=model.size).astype(np.float32))
    x = np.random.default_rng(1).integers(3, size=(4, *shape)).astype(np.float32)

    @jax.jit
    def outputs(params, key):
        short, long = (model.forward(params, of, key) for of in (x, np.concatenate([x, x[:2]])))
        return short, long[:4], model.forward(params, x)

    with jax.threefry_partitionable(False):
        short, long, scored = outputs(params, jax.random.key(1))
    np.testing.assert_allclose(short, long, rtol=1e-4, atol=1e-4)
    assert not np.allclose(short, scored, atol=1e-3)


def test_published_starts_have_their_spreads():
    resnet = build("resnet20", {"blocks": 1}, (8, 8, 3), 10)
    begin = lambda model: jax.jit(lambda: model.unravel(model.init(jax.random.key(0))))()  # noqa: E731
    params = jax.tree.map(np.asarray, begin(resnet))
    assert 0.9 < np.var(params["block_2_0"]["conv_1"]["kernel"]) * 9 * 64 / 2 < 1.1
    assert np.all(params["norm"]["scale"] == 1) and not np.any(params["norm"]["bias"])
    transformer = build("transformer", {"depth": 8, "width": 32, "heads": 2}, (6,), 50)
    params = jax.tree.map(np.asarray, begin(transformer))
    assert 0.018 < np.std(params["block_0"]["attention"]["query"]["kernel"]) < 0.022
    assert (
        0.0045 < np.std(params["block_0"]["attention"]["out"]["kernel"]) < 0.0055
    )  # a quarter, for eight blocks
    assert np.isfinite(jax.jit(to_normal)(np.float32([-1.0, 0.0]))).all()


def test_perplexity_is_e_to_the_mean_loss_of_the_scored():
    seen = SimpleNamespace(
        who=np.array([True, True, False]),
        loss=np.float32([3.0, 5.0, 99.0]),
        samples=np.array([2, 6, 5]),
    )
    np.testing.assert_allclose(METRICS.entry("perplexity").make(seen), np.e, rtol=1e-6)
