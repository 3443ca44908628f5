"""The models against definitions of PyTorch with the same weights. Skipped where torch is not
installed."""

from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save

from cfljax.models import MODELS, build
from cfljax.models.started import POOLED_MODELS, apply_start
from cfljax.results.export import name_arrays, state_dict

torch = pytest.importorskip("torch")
from benchmarks.peers import torch_models as theirs  # noqa: E402

STAGES = (
    (1, 8, 1, 1),
    (6, 8, 1, 1),
    (6, 8, 1, 2),
    (6, 8, 1, 2),
    (6, 8, 1, 1),
    (6, 8, 1, 2),
    (6, 16, 1, 1),
)
"""Those of mobilenet_v2 at width = 0.05 and depth = 0.1, with the first two halvings left out."""
CASES = {
    "resnet20": ({"blocks": 2, "width": 4}, (9, 8, 3), 5, lambda: theirs.ResNet((2, 2, 2), 4, 2, 5, 3, False, False)),
    "resnet18": ({"blocks": [1, 2], "width": 4}, (9, 8, 3), 5, lambda: theirs.ResNet((1, 2), 4, 2, 5, 3, True, False)),
    "resnet18 large": (
        {"blocks": [1, 1], "width": 4, "stem": "large"}, (17, 16, 3), 5, lambda: theirs.ResNet((1, 1), 4, 2, 5, 3, True, True)
    ),
    "mobilenet_v2": (
        {"width": 0.05, "depth": 0.1}, (17, 16, 3), 5, lambda: theirs.MobileNet(STAGES, 8, 64, 1, 2, 5, 3)
    ),
    "vit_tiny": ({"patch": 3, "width": 8, "depth": 2, "heads": 2}, (9, 6, 2), 5, lambda: theirs.Vision(3, 2, 7, 8, 2, 2, 5)),
    "char_lstm": ({"embedding": 3, "width": 4}, (6,), 5, lambda: theirs.Characters(5, 3, 4, 2, 5)),
    "transformer": ({"width": 8, "depth": 2, "heads": 2}, (6,), 5, lambda: theirs.Transformer(5, 6, 8, 2, 2, 32, 5, "next")),
    "transformer class": (
        {"width": 8, "depth": 1, "heads": 4, "hidden": 12, "vocabulary": 9, "task": "class"},
        (6,), 3, lambda: theirs.Transformer(9, 6, 8, 1, 4, 12, 3, "class"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_pytorch_with_the_same_weights(case):
    (options, shape, classes, make), name, rng = (
        CASES[case],
        case.split()[0],
        np.random.default_rng(0),
    )
    model = build(name, options, shape, classes)
    flat = (0.3 * rng.normal(size=model.size)).astype(np.float32)
    params = model.unravel(flat)
    tokens = len(shape) == 1
    x = (
        rng.integers(5, size=(4, *shape))
        if tokens
        else rng.normal(size=(4, *shape)).astype(np.float32)
    )
    y = np.arange(4) % classes
    forget_bias = 1.0 if name == "char_lstm" else 0.0
    module = theirs.load(make(), state_dict(params, forget_bias, name not in POOLED_MODELS))
    seen = torch.from_numpy(x if tokens else np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    logits = module(seen)
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)).backward()

    def loss(flat):
        out = model.forward(model.unravel(flat), x.astype(np.float32))
        return model.loss(out, y).mean(), out

    (_, ours), slope = jax.jit(jax.value_and_grad(loss, has_aux=True))(flat)
    np.testing.assert_allclose(
        ours, logits.detach().numpy(), atol=2e-5 * max(1, np.abs(ours).max())
    )
    squares = [
        (p.grad**2).sum().item() for each, p in module.named_parameters() if "bias_hh" not in each
    ]  # a second bias
    np.testing.assert_allclose(np.linalg.norm(slope), np.sqrt(np.sum(squares)), rtol=2e-4)


@pytest.mark.parametrize(
    ("name", "shape", "make"),
    [
        ("resnet20", (32, 32, 3), lambda: theirs.ResNet((3, 3, 3), 16, 2, 10, 3, False, False)),
        ("resnet18", (32, 32, 3), lambda: theirs.ResNet((2, 2, 2, 2), 64, 2, 10, 3, True, False)),
        ("transformer", (80,), lambda: theirs.Transformer(10, 80, 128, 2, 4, 512, 10, "next")),
        ("vit_tiny", (32, 32, 3), lambda: theirs.Vision(4, 3, 65, 192, 12, 3, 10)),
    ],
)
def test_there_are_as_many_parameters_as_in_pytorch(name, shape, make):
    with torch.device("meta"):
        assert build(name, {}, shape, 10).size == sum(p.numel() for p in make().parameters())


@pytest.mark.parametrize(
    "case", ["resnet20", "mobilenet_v2", "vit_tiny", "char_lstm", "transformer class"]
)
def test_a_start_from_pytorch_has_its_outputs(case, tmp_path):
    options, shape, classes, make = CASES[case]
    module = make()
    arrays = {name: value.numpy() for name, value in module.state_dict().items()}
    file = tmp_path / "theirs.safetensors"
    file.write_bytes(save(arrays))
    name, tokens = case.split()[0], len(shape) == 1
    model = apply_start(
        build(name, options, shape, classes),
        MODELS.check(name, options | {"weights": str(file)}, "model"),
        None,
    )
    rng = np.random.default_rng(0)
    x = (
        rng.integers(5, size=(3, *shape))
        if tokens
        else rng.normal(size=(3, *shape)).astype(np.float32)
    )
    theirs_of = module(
        torch.from_numpy(x if tokens else np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    )
    ours = model.forward(model.unravel(model.init(jax.random.key(0))), x.astype(np.float32))
    np.testing.assert_allclose(ours, theirs_of.detach().numpy(), atol=1e-5)


def test_the_peer_of_the_benchmark_gets_the_weights_of_a_resnet_and_gives_them_back(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(theirs.__file__).parent))
    import networks

    model = build("resnet20", {"blocks": 1, "width": 4}, (8, 8, 3), 5)
    params = model.unravel(np.random.default_rng(0).normal(size=model.size).astype(np.float32))
    init = {name.replace(".", "/"): array[None] for name, array in name_arrays(params).items()}
    net, x = (
        networks.build(init),
        np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype(np.float32),
    )
    weights = networks.to_torch(init, (8, 8, 3), 0)
    with torch.no_grad():
        for own, given in zip(net.parameters(), weights, strict=True):
            own.copy_(given)
    out = net(networks.as_tensors(x, np.zeros(2))[0]).detach().numpy()
    np.testing.assert_allclose(out, model.forward(params, x), atol=1e-4 * np.abs(out).max())
    for name, back in networks.from_torch([weights], init, (8, 8, 3)).items():
        np.testing.assert_array_equal(back, init[name])
