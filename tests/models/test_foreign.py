"""Files as torchvision and timm name their parameters. What PyTorch would compute of them stands in
plain numpy beside; where torchvision and timm are installed, their own networks are asked, too."""

import functools
import warnings

import jax
import numpy as np
import pytest
from safetensors.numpy import save

from cfljax.errors import SpecError, SpecWarning
from cfljax.models import build
from cfljax.models.options import ModelOptions
from cfljax.models.started import Adapters, apply_start
from cfljax.results.export import name_arrays, state_dict
from tests.often import rarely
from tests.reference import pretrained


def layers(shapes):
    """name.weight of each; a layer of normalisation also has a bias."""
    found = {}
    for name, shape in shapes.items():
        found[f"{name}.weight"] = shape
        if len(shape) < 4:
            found[f"{name}.bias"] = shape[:1]
    return found


def of_resnet(width=4, classes=5, inputs=3, side=3):
    """Of torchvision's `ResNet(BasicBlock, [2, 1])`, and timm's."""
    shapes = {"conv1": (width, inputs, side, side), "bn1": (width,), "fc": (classes, 2 * width)}
    for at, before, after in (
        ("layer1.0", width, width),
        ("layer1.1", width, width),
        ("layer2.0", width, 2 * width),
    ):
        shapes |= {f"{at}.conv1": (after, before, 3, 3), f"{at}.conv2": (after, after, 3, 3)}
        shapes |= {f"{at}.bn1": (after,), f"{at}.bn2": (after,)}
    shapes |= {
        "layer2.0.downsample.0": (2 * width, width, 1, 1),
        "layer2.0.downsample.1": (2 * width,),
    }
    return layers(shapes)


CHANNELS = (8, 8, 8, 8, 8, 8, 8, 16)
"""Of mobilenet_v2 at width = 0.05 and depth = 0.1: the first convolution's, and of each block."""
STRIDES = (1, 1, 1, 2, 2, 1, 2, 1)


def of_mobilenet(classes=5, inputs=3, last=64):
    """Of torchvision's `MobileNetV2`."""
    shapes = {"features.0.0": (8, inputs, 3, 3), "features.0.1": (8,)}
    for number, (before, after) in enumerate(zip(CHANNELS, CHANNELS[1:], strict=False), 1):
        at, wide = f"features.{number}.conv", before * (1 if number == 1 else 6)
        if number == 1:
            shapes |= {
                f"{at}.0.0": (wide, 1, 3, 3),
                f"{at}.0.1": (wide,),
                f"{at}.1": (after, wide, 1, 1),
                f"{at}.2": (after,),
            }
        else:
            shapes |= {
                f"{at}.0.0": (wide, before, 1, 1),
                f"{at}.0.1": (wide,),
                f"{at}.1.0": (wide, 1, 3, 3),
                f"{at}.1.1": (wide,),
            }
            shapes |= {f"{at}.2": (after, wide, 1, 1), f"{at}.3": (after,)}
    number = len(CHANNELS)
    shapes |= {
        f"features.{number}.0": (last, CHANNELS[-1], 1, 1),
        f"features.{number}.1": (last,),
        "classifier.1": (classes, last),
    }
    return layers(shapes)


def of_vision(width=8, depth=2, patch=3, length=7, classes=5, inputs=2):
    """Of timm's `VisionTransformer`."""
    shapes = {
        "patch_embed.proj": (width, inputs, patch, patch),
        "norm": (width,),
        "head": (classes, width),
    }
    for at in (f"blocks.{number}" for number in range(depth)):
        shapes |= {
            f"{at}.norm1": (width,),
            f"{at}.attn.qkv": (3 * width, width),
            f"{at}.attn.proj": (width, width),
        }
        shapes |= {
            f"{at}.norm2": (width,),
            f"{at}.mlp.fc1": (4 * width, width),
            f"{at}.mlp.fc2": (width, 4 * width),
        }
    own = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, length, width),
        "patch_embed.proj.bias": (width,),
    }
    return layers(shapes) | own


CASES = {
    "resnet18": ({"blocks": [2, 1], "width": 4}, (9, 8, 3), of_resnet(), lambda of, x: pretrained.resnet(of, x, False)),
    "resnet18 large": (
        {"blocks": [2, 1], "width": 4, "stem": "large"}, (17, 16, 3), of_resnet(side=7),
        lambda of, x: pretrained.resnet(of, x, True),
    ),
    "mobilenet_v2": (
        {"width": 0.05, "depth": 0.1}, (17, 16, 3), of_mobilenet(), lambda of, x: pretrained.mobilenet(of, x, STRIDES),
    ),
    "vit_tiny": (
        {"patch": 3, "width": 8, "depth": 2, "heads": 2}, (9, 6, 2), of_vision(), lambda of, x: pretrained.vision(of, x, 2),
    ),
}  # fmt: skip


def drawn(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (0.4 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()
    }


def written(path, arrays):
    path.write_bytes(save(arrays))
    return str(path)


@functools.cache
def network_of(case, classes):
    options, shape = CASES[case][:2]
    return build(case.split()[0], options, shape, classes)


def begun(case, arrays, tmp_path, lora=None, classes=5, **told):
    """The network of the case, and the model that starts from the arrays."""
    network = network_of(case, classes)
    told = ModelOptions(weights=written(tmp_path / "theirs.safetensors", arrays), **told)
    return network, apply_start(network, told, lora)


@pytest.mark.parametrize("case", CASES)
def test_a_file_by_the_names_of_torchvision_or_timm_has_the_outputs_of_its_network(case, tmp_path):
    _, shape, shapes, forward = CASES[case]
    arrays = drawn(shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpecWarning)
        network, model = begun(case, arrays, tmp_path)
    assert network.size == sum(array.size for array in arrays.values())
    x = np.random.default_rng(1).normal(size=(3, *shape)).astype(np.float32)
    wanted = forward(
        {name: array.astype(float) for name, array in arrays.items()},
        x.transpose(0, 3, 1, 2).astype(float),
    )
    ours = jax.jit(model.forward)(model.unravel(model.init(jax.random.key(0))), x)
    np.testing.assert_allclose(ours, wanted, atol=1e-4 * np.abs(wanted).max())


TIMM = {
    "conv.0.0": "conv_pw",
    "conv.0.1": "bn1",
    "conv.1.0": "conv_dw",
    "conv.1.1": "bn2",
    "conv.2": "conv_pwl",
    "conv.3": "bn3",
}
FIRST = {"conv.0.0": "conv_dw", "conv.0.1": "bn1", "conv.1": "conv_pw", "conv.2": "bn2"}
OUTER = {
    "features.0.0": "conv_stem",
    "features.0.1": "bn1",
    "features.8.0": "conv_head",
    "features.8.1": "bn2",
}
OUTER["classifier.1"] = "classifier"


def test_mobilenet_by_the_names_of_timm_is_that_of_torchvision(tmp_path):
    theirs = drawn(of_mobilenet())
    timm = {}
    for name, array in theirs.items():
        layer, _, last = name.rpartition(".")
        if layer not in OUTER:
            _, number, own = layer.split(".", 2)
            layer = f"blocks.{int(number) - 1}.0.{(FIRST if number == '1' else TIMM)[own]}"
        timm[f"{OUTER.get(layer, layer)}.{last}"] = array
    one, other = (begun("mobilenet_v2", arrays, tmp_path)[1] for arrays in (theirs, timm))
    np.testing.assert_array_equal(one.init(jax.random.key(0)), other.init(jax.random.key(0)))


ENCODERS = {
    "torchvision": (
        "encoder.layers.encoder_layer_{}", {
            "attn.qkv": "self_attention.in_proj_", "attn.proj": "self_attention.out_proj.", "norm1": "ln_1.", "norm2": "ln_2.",
            "mlp.fc1": "mlp.0.", "mlp.fc2": "mlp.3.",
        }, {
            "patch_embed.proj": "conv_proj.", "norm": "encoder.ln.", "head": "heads.head.", "cls_token": "class_token",
            "pos_embed": "encoder.pos_embedding",
        },
    ),
    "encoder layers": (
        "layers.{}", {
            "attn.qkv": "self_attn.in_proj_", "attn.proj": "self_attn.out_proj.", "norm1": "norm1.", "norm2": "norm2.",
            "mlp.fc1": "linear1.", "mlp.fc2": "linear2.",
        }, {
            "patch_embed.proj": "embed.", "norm": "last_norm.", "head": "head.", "cls_token": "class_token",
            "pos_embed": "embed_positions",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ENCODERS)
def test_transformers_by_other_names_are_those_of_timm(kind, tmp_path):
    timm, other = drawn(of_vision()), {}
    block, inside, outside = ENCODERS[kind]
    for name, array in timm.items():
        layer, _, last = name.rpartition(".")
        if layer.startswith("blocks."):
            _, number, own = layer.split(".", 2)
            other[f"{block.format(number)}.{inside[own]}{last}"] = array
        else:
            other[outside[layer] + last if layer in outside else outside[name]] = array
    one, two = (begun("vit_tiny", arrays, tmp_path)[1] for arrays in (timm, other))
    np.testing.assert_array_equal(one.init(jax.random.key(0)), two.init(jax.random.key(0)))


def with_batches(arrays):
    """A file of the same network with batch normalisation."""
    kept = {}
    for name in arrays:
        layer, _, last = name.rpartition(".")
        if arrays[name].ndim == 1 and last == "weight":
            kept |= {
                f"{layer}.running_mean": arrays[name],
                f"{layer}.running_var": arrays[name] ** 2,
            }
            kept[f"{layer}.num_batches_tracked"] = np.array(7)
    return arrays | kept


def test_of_batch_normalisation_scales_and_biases_are_taken_and_one_line_says_what_is_not(tmp_path):
    arrays = drawn(of_resnet())
    _, plain = begun("resnet18", arrays, tmp_path)
    with pytest.warns(
        SpecWarning, match=r"its 8 layers of batch normalisation.*not their means and variances"
    ) as said:
        _, model = begun("resnet18", with_batches(arrays), tmp_path)
    assert len(said) == 1 and "\n" not in str(said[0].message)
    np.testing.assert_array_equal(model.init(jax.random.key(0)), plain.init(jax.random.key(0)))


def frozen(case, arrays, tmp_path, name="theirs"):
    """The network of the case, whose body the file has and which does not train, and the model of
    its head."""
    options, shape = CASES[case][:2]
    told = {"weights": written(tmp_path / f"{name}.safetensors", arrays), "frozen": "body"}
    network = build(case, options | told, shape, 5)
    return network, apply_start(network, ModelOptions(**told), None)


@pytest.mark.parametrize("case", ["resnet18", rarely("mobilenet_v2")])
def test_a_frozen_body_has_the_batch_normalisation_of_its_file(case, tmp_path):
    _, shape, shapes, forward = CASES[case]
    arrays = with_batches(drawn(shapes))
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpecWarning)
        _, model = frozen(case, arrays, tmp_path)
    x = np.random.default_rng(1).normal(size=(3, *shape)).astype(np.float32)
    wanted = forward(
        {name: array.astype(float) for name, array in arrays.items()},
        x.transpose(0, 3, 1, 2).astype(float),
    )
    params = model.unravel(model.init(jax.random.key(0)))
    ours = jax.jit(model.forward)(params, x)
    np.testing.assert_allclose(ours, wanted, atol=1e-4 * np.abs(wanted).max())
    plain = {name: array for name, array in arrays.items() if "running" not in name}
    assert (
        model.size
        == frozen(case, plain, tmp_path, "plain")[1].size
        == params["head"]["kernel"].size + 5
    )  # the head alone
    whole = jax.tree.map(np.asarray, model.whole(params))
    for exported in (name_arrays(whole), state_dict(whole, 0.0, False)):  # which begins another run
        again = frozen(case, exported, tmp_path, "again")[1]
        jax.tree.map(
            np.testing.assert_array_equal,
            again.whole(again.unravel(again.init(jax.random.key(0)))),
            whole,
        )


def test_what_is_frozen_and_has_no_place_for_means_and_variances_is_refused(tmp_path):
    arrays = with_batches(drawn(of_vision()))  # of layers that have none
    for told, lora, flag in (
        ({"frozen": "body"}, None, "model.frozen"),
        ({}, Adapters(1, 1.0, "all", False), "train.lora"),
    ):
        with pytest.raises(
            SpecError, match=f'model "vit_tiny" has no place.*leave {flag} out'
        ) as raised:
            begun("vit_tiny", arrays, tmp_path, lora, **told)
        assert "\n" not in str(raised.value)


def test_what_has_no_place_in_the_model_is_named(tmp_path):
    arrays = drawn(of_vision()) | {
        "dist_token": np.zeros((1, 1, 8), np.float32),
        "head_dist.bias": np.zeros(5, np.float32),
    }
    with pytest.warns(SpecWarning, match=r"no place for dist_token \(and 1 more\)"):
        begun("vit_tiny", arrays, tmp_path)


def test_the_head_of_such_a_file_may_be_of_other_classes(tmp_path):
    arrays = drawn(of_vision(classes=9))
    with pytest.warns(SpecWarning, match="the head is initialised: head/bias is 9, here 5"):
        _, model = begun("vit_tiny", arrays, tmp_path)
    params = model.unravel(model.init(jax.random.key(0)))
    np.testing.assert_array_equal(params["class_token"], arrays["cls_token"][0, 0])


@pytest.mark.parametrize(
    ("case", "shapes", "words"),
    [
        (
            "resnet18",
            of_resnet() | layers({"layer2.1.conv1": (8, 8, 3, 3)}),
            "its network has 4 blocks, and the model 3",
        ),
        ("resnet18", of_resnet(side=7), "conv/kernel 7×7×3×4, here 3×3×3×4"),
        ("vit_tiny", of_vision(length=10), "embed_positions 10×8, here 7×8"),
        ("vit_tiny", of_vision(inputs=3), "embed_kernel 3×3×3×8, here 3×3×2×8"),
        ("mobilenet_v2", of_resnet(), "its network has 3 blocks, and the model 7"),
    ],
)
def test_what_does_not_fit_is_one_line(case, shapes, words, tmp_path):
    with pytest.raises(SpecError) as raised:
        begun(case, drawn(shapes), tmp_path)
    assert words in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("where", "matrices"), [("attention", 4 * (8 + 8)), rarely("dense", 2 * (8 + 32))]
)
def test_adapters_of_a_file_by_timms_names_begin_with_its_outputs(where, matrices, tmp_path):
    arrays = drawn(of_vision())
    network, model = begun("vit_tiny", arrays, tmp_path, Adapters(3, 6.0, where, False))
    assert model.size == 2 * 3 * matrices
    _, whole = begun("vit_tiny", arrays, tmp_path)
    x = np.random.default_rng(1).normal(size=(3, 9, 6, 2)).astype(np.float32)
    begin, forward = (
        np.asarray(model.init(jax.random.key(0))),
        jax.jit(lambda flat: model.forward(model.unravel(flat), x)),
    )
    same = jax.jit(network.forward)(whole.unravel(whole.init(jax.random.key(0))), x)
    np.testing.assert_allclose(forward(begin), same, atol=1e-5)
    assert not np.allclose(forward(begin + np.float32(0.1)), same, atol=1e-2)
