"""LoRA on attention whose kernels have an axis for the heads, as flax has it, and on the vision
transformer."""

import jax
import numpy as np
import pytest
from flax import linen as nn
from safetensors.numpy import save

from cfljax.models import as_model, build
from cfljax.models.options import ModelOptions
from cfljax.models.started import Adapters, apply_start
from cfljax.results.export import name_arrays
from tests.models.test_models import weights
from tests.often import rarely


class Mixed(nn.Module):
    """A convolution over a sequence, flax's attention, a head."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (3,), name="query")(x)  # three axes, and no attention
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=6, name="mixes")(x, x)
        return nn.Dense(5, name="head")(nn.relu(nn.Dense(7, name="dense")(x)).mean(1))


def adapted(network, lora, tmp_path):
    """(the network's parameters, the model with adapters that starts from them)."""
    base = jax.tree.map(np.asarray, network.unravel(weights(network)))
    file = tmp_path / "start.safetensors"
    file.write_bytes(save(name_arrays(base)))
    return base, apply_start(network, ModelOptions(weights=str(file)), lora)


@pytest.mark.parametrize(
    ("where", "size"),
    [("attention", 3 * (8 + 6) + 6 + 8), ("dense", 8 + 7), ("all", 3 * (8 + 6) + 6 + 8 + 8 + 7)],
)
def test_adapters_of_flaxs_attention_are_matrices_over_all_heads(where, size, tmp_path):
    network = as_model("mine", Mixed(), (4, 3), 5)
    base, model = adapted(network, Adapters(2, 6.0, where, False), tmp_path)
    assert model.size == 2 * size
    begin, whole = (
        jax.tree.map(np.asarray, model.unravel(model.init(jax.random.key(0)))),
        jax.jit(model.whole),
    )
    jax.tree.map(np.testing.assert_array_equal, whole(begin), base)
    moved = jax.tree.map(lambda a: a + np.float32(0.1), begin)
    changed = whole(moved)
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    ours, wanted = jax.jit(
        lambda moved, changed: (model.forward(moved, x), network.forward(changed, x))
    )(moved, changed)
    np.testing.assert_allclose(ours, wanted, atol=1e-5)
    np.testing.assert_array_equal(changed["query"]["kernel"], base["query"]["kernel"])
    if where == "dense":
        return
    for layer, sides in {"query": (8, 6), "value": (8, 6), "out": (6, 8)}.items():
        down, up = (np.asarray(moved["mixes"][layer][word]) for word in ("down", "up"))
        assert (down.shape, up.shape) == ((sides[0], 2), (2, sides[1]))
        old, new = (
            np.asarray(tree["mixes"][layer]["kernel"]).reshape(sides) for tree in (base, changed)
        )
        np.testing.assert_allclose(new, old + 3 * down @ up, atol=1e-5)
        np.testing.assert_array_equal(changed["mixes"][layer]["bias"], base["mixes"][layer]["bias"])


VISION = {"patch": 2, "width": 4, "depth": 2, "heads": 2}


@pytest.mark.parametrize(
    ("where", "head", "size"),
    [
        rarely("attention", False, 2 * 4 * 8),
        rarely("dense", False, 2 * 2 * (4 + 16)),
        ("all", True, 2 * (4 * 8 + 2 * 20) + (4 * 3 + 3) / 2),
    ],
)
def test_adapters_of_the_vision_transformer_are_on_the_layers_that_are_named(
    where, head, size, tmp_path
):
    network = build("vit_tiny", VISION, (4, 6, 2), 3)
    base, model = adapted(network, Adapters(2, 4.0, where, head), tmp_path)
    assert model.size == 2 * size
    changed = name_arrays(jax.jit(lambda flat: model.whole(model.unravel(flat)))(weights(model, 1)))
    moved = {
        name
        for name, array in changed.items()
        if not np.array_equal(array, name_arrays(base)[name])
    }
    attention = [f"attention.{each}" for each in ("query", "key", "value", "out")]
    own = {"attention": attention, "dense": ["dense_0", "dense_1"]}
    layers = [each for kind in own if where in (kind, "all") for each in own[kind]]
    wanted = {f"block_{number}.{layer}.kernel" for number in (0, 1) for layer in layers}
    assert moved == wanted | ({"head.kernel", "head.bias"} if head else set())
