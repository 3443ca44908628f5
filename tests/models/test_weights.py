"""A start from a file: names, shapes, and what does not fit."""

import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

from cfljax.errors import SpecError, SpecWarning
from cfljax.models import MODELS, build
from cfljax.models.features import split_features, with_features
from cfljax.models.options import ModelOptions
from cfljax.models.started import (
    POOLED_MODELS,
    Adapters,
    apply_start,
    common_options,
    to_head_model,
)
from cfljax.models.weights import read_arrays, read_start
from cfljax.results.export import name_arrays, state_dict
from tests.models.test_models import SMALL, batch, small, weights
from tests.often import every, rarely


def write(path, arrays):
    path.write_bytes(save(arrays))
    return str(path)


@pytest.mark.parametrize("layout", ["jax", "torch"])
@pytest.mark.parametrize("name", SMALL)
def test_every_model_comes_back_from_either_layout(name, layout, tmp_path):
    model = small(name)[0]
    flat = weights(model)
    params = jax.tree.map(np.asarray, model.unravel(flat))
    arrays = (
        name_arrays(params)
        if layout == "jax"
        else state_dict(params, 0.5, name not in POOLED_MODELS)
    )
    start = read_start(
        model,
        write(tmp_path / "a.safetensors", arrays),
        0.5 if layout == "torch" else 9.0,
        name not in POOLED_MODELS,
    )
    np.testing.assert_allclose(start.flat, flat, atol=1e-6)
    assert start.known.all() and not start.misfit


def test_a_head_of_another_shape_begins_anew_and_nothing_else_may(tmp_path):
    three, five = build("mlp", {"hidden": [4]}, (6,), 3), build("mlp", {"hidden": [4]}, (6,), 5)
    flat = weights(three)
    file = write(tmp_path / "three.safetensors", name_arrays(three.unravel(flat)))
    with pytest.warns(SpecWarning, match="the head is initialised: dense_1/bias is 3, here 5"):
        model = apply_start(five, ModelOptions(weights=file), None)
    begun, own = (
        model.unravel(model.init(jax.random.key(3))),
        five.unravel(five.init(jax.random.key(3))),
    )
    np.testing.assert_array_equal(
        begun["dense_0"]["kernel"], three.unravel(flat)["dense_0"]["kernel"]
    )
    np.testing.assert_array_equal(begun["dense_1"]["kernel"], own["dense_1"]["kernel"])
    wide = build("mlp", {"hidden": [7]}, (6,), 3)
    with pytest.raises(
        SpecError, match=r'does not fit model "mlp": dense_0/bias 4, here 7 \(and 1 more\)'
    ):
        apply_start(wide, ModelOptions(weights=file), None)
    with pytest.raises(SpecError, match="conv_0/bias is missing"):
        apply_start(small("cnn")[0], ModelOptions(weights=file), None)


def test_halves_and_doubles_and_whole_numbers_are_read(tmp_path):
    x = np.float32([[1.5, -2.0]])
    kinds = {name: x.astype(name) for name in ("float16", "float64", jax.numpy.bfloat16.dtype.name)}
    found = read_arrays(write(tmp_path / "kinds.safetensors", kinds | {"counter": np.array(7)}))
    for name in kinds:
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], x)


def broken(kind, whole):
    if kind == "cut":
        return whole[:-5]
    if kind == "short":
        return whole[:6]
    if kind == "long header":
        return struct.pack("<Q", 1 << 60) + whole[8:]
    if kind == "no JSON":
        return whole[:8] + b"x" * (len(whole) - 8)
    return b"PK\x03\x04" + whole


@pytest.mark.parametrize("kind", ["cut", "short", "long header", "no JSON", "zip"])
def test_a_broken_file_says_so_in_one_line(kind, tmp_path):
    file = tmp_path / "broken.safetensors"
    file.write_bytes(broken(kind, save({"a": np.ones((3, 2), np.float32)})))
    with pytest.raises(SpecError, match="is not a complete safetensors file") as raised:
        read_arrays(str(file))
    assert "\n" not in str(raised.value)


def test_jitter_differs_by_key_and_has_the_size_of_each_layer(tmp_path):
    model = build("mlp", {"hidden": [60]}, (50,), 3)
    params = jax.tree.map(np.array, model.unravel(weights(model)))
    params["dense_0"]["kernel"] *= 0.1
    file = write(tmp_path / "a.safetensors", name_arrays(params))
    init = apply_start(model, ModelOptions(weights=file, jitter=0.5), None).init
    one, other = (
        np.asarray(model.unravel(init(jax.random.key(seed)))["dense_0"]["kernel"])
        for seed in (0, 1)
    )
    assert not np.allclose(one, other)
    assert (
        0.45
        < np.std(one - params["dense_0"]["kernel"]) / np.std(params["dense_0"]["kernel"])
        < 0.55
    )


LORA = {"width": 8, "depth": 1, "heads": 2, "hidden": 12}


@pytest.mark.parametrize(
    ("where", "head", "size"),
    [
        rarely("attention", False, 4 * 2 * (8 + 8)),
        rarely("dense", False, 2 * 2 * (8 + 12)),
        ("all", True, 4 * 2 * (8 + 8) + 2 * 2 * (8 + 12) + 8 * 5 + 5),
    ],
)
def test_adapters_begin_as_the_file_and_move_the_kernels_by_their_product(
    where, head, size, tmp_path
):
    full = build("transformer", LORA, (6,), 5)
    flat = weights(full)
    base = jax.tree.map(np.asarray, full.unravel(flat))
    told = ModelOptions(weights=write(tmp_path / "a.safetensors", name_arrays(base)))
    model = apply_start(full, told, Adapters(2, 6.0, where, head))
    assert model.size == size
    params = model.unravel(model.init(jax.random.key(0)))
    whole = jax.jit(model.whole)
    jax.tree.map(np.testing.assert_array_equal, whole(params), base)
    moved = model.unravel(np.asarray(model.ravel(params)) + np.float32(0.1))
    changed = whole(moved)
    layer, path = (
        ("dense_0", ("block_0", "dense_0"))
        if where == "dense"
        else ("query", ("block_0", "attention", "query"))
    )
    adapter, kernel, old = moved, changed, base
    for step in path:
        adapter, kernel, old = adapter[step], kernel[step], old[step]
    product = np.asarray(adapter["down"]) @ np.asarray(adapter["up"])
    np.testing.assert_allclose(kernel["kernel"], old["kernel"] + 3 * product, atol=1e-5)
    assert np.linalg.matrix_rank(product) <= 2 and layer == path[-1]
    np.testing.assert_array_equal(kernel["bias"], old["bias"])
    assert np.array_equal(changed["head"]["kernel"], base["head"]["kernel"]) != head
    x = np.array([[0, 1, 2, 3, 4, 0]], np.float32)
    ours, wanted = jax.jit(
        lambda moved, changed: (model.forward(moved, x), full.forward(changed, x))
    )(moved, changed)
    np.testing.assert_allclose(ours, wanted, atol=1e-5)


def test_adapters_with_jitter_move_kernels_by_their_spread(tmp_path):
    full = build("transformer", {"width": 32, "depth": 1, "heads": 2}, (6,), 5)
    base = full.unravel(weights(full))
    told = ModelOptions(weights=write(tmp_path / "a.safetensors", name_arrays(base)), jitter=0.5)
    model = apply_start(full, told, Adapters(8, 16.0, "dense", False))
    begun = jax.jit(lambda key: model.whole(model.unravel(model.init(key))))(jax.random.key(0))
    one, other = (np.asarray(tree["block_0"]["dense_0"]["kernel"]) for tree in (begun, base))
    assert 0.35 < np.std(one - other) / np.std(other) < 0.65


@pytest.mark.parametrize(
    ("name", "lora", "words"),
    [
        ("mlp", Adapters(2, 4.0, "attention", False), "has no such layer"),
        ("char_lstm", Adapters(2, 4.0, "dense", False), "no such layer"),
    ],
)
def test_adapters_without_a_layer_are_refused(name, lora, words, tmp_path):
    model = small(name)[0]
    told = ModelOptions(
        weights=write(tmp_path / "a.safetensors", name_arrays(model.unravel(weights(model))))
    )
    with pytest.raises(SpecError, match=words):
        apply_start(model, told, lora)


def test_an_own_option_called_weights_is_the_users():
    import dataclasses

    import cfljax

    @dataclasses.dataclass(frozen=True)
    class Options:
        rate: float
        weights: str = cfljax.option("none", "of my own")

    MODELS.add("mine", lambda options, sample_shape, classes: None, Options)
    made = MODELS.check("mine", {"rate": 0.5, "weights": "w", "frozen": "body"}, "model")
    assert (made.rate, made.weights, made.frozen) == (0.5, "w", "body")
    assert common_options(made) == ModelOptions(frozen="body")


EVERY = (
    "mclr",
    "mlp",
    "cnn",
    "cnn_cifar",
    "lstm",
    "resnet20",
    "resnet18",
    "mobilenet_v2",
    "vit_tiny",
    "char_lstm",
    "transformer",
)


@pytest.mark.parametrize(
    "name", every(EVERY, often=set(EVERY) - {"cnn", "resnet18", "mobilenet_v2", "char_lstm"})
)
def test_every_model_has_a_head_that_makes_its_outputs_of_the_features_of_a_frozen_body(
    name, tmp_path
):
    network, shape, classes = small(name)
    flat = weights(network)
    file = write(tmp_path / "a.safetensors", name_arrays(network.unravel(flat)))
    divided = apply_start(network, ModelOptions(weights=file, frozen="body", jitter=0.1), None)
    both, width = split_features(network)
    x, _ = batch(shape, classes)
    alone = to_head_model(network, divided, classes, width)
    assert (
        alone.size
        == divided.size
        == width * (1 if classes == 2 else classes) + (1 if classes == 2 else classes)
    )

    @jax.jit
    def outcomes(flat):
        body, params = network.unravel(flat), divided.unravel(divided.init(jax.random.key(0)))
        features = both(body, x)
        outputs = alone.forward(params, features[0]), divided.forward(params, x)
        begun = [each.init(jax.random.key(1)) for each in (alone, divided)]
        if name == "mclr":
            return outputs, begun, None
        observe = with_features(network)[0]
        seen, trained = (observe(body, x, key) for key in (None, jax.random.key(2)))
        return outputs, begun, (seen, jnp.concatenate(features, axis=1), trained)

    outputs, begun, observed = outcomes(flat)
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(*begun)
    if observed is not None:
        seen, wanted, trained = observed
        np.testing.assert_allclose(seen, wanted, rtol=1e-6)
        assert trained.shape == seen.shape and np.isfinite(trained).all()
