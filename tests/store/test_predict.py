"""Predictions, confusions and exports of kept models, against forward passes in plain numpy and in
PyTorch."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import cfljax
from cfljax.errors import SpecError, StoreError
from cfljax.experiment.assemble import host_federation
from cfljax.results import export, predict

DIGITS = {"name": "digits", "partition": "rotated", "clients": 6}


def softmax(logits):
    each = np.exp(logits - logits.max(axis=1, keepdims=True))
    return each / each.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def result():
    return cfljax.run("ifca", DIGITS, {"name": "mlp", "hidden": [8]}, rounds=2, lr=0.1, clusters=2)


@pytest.fixture(scope="module")
def never_training():
    data = {
        "name": "blobs",
        "samples": 300,
        "partition": "label_permutation",
        "groups": 2,
        "clients": 4,
        "samples_per_client": 25,
    }
    return cfljax.run("ifca", data | {"test_clients": 2}, "mclr", rounds=2, clusters=3)


def test_confusions_are_what_the_run_was_scored_with(result):
    for client in range(6):
        table = result.confusion(client)
        assert table.shape == (10, 10) and np.trace(table) / table.sum() == pytest.approx(
            result.client_accuracy[client], abs=1e-6
        )
        x, y = result.samples(client)
        assert np.array_equal(table.sum(axis=1), np.bincount(y, minlength=10))


def test_predictions_are_a_plain_forward_pass(result):
    x = np.random.default_rng(0).integers(0, 17, (5, 8, 8))
    federation = host_federation(predict.read_run(result.record))
    assert federation.pool.x.shape[1:] == (8, 8, 1)
    seen = ((x[..., None] - federation.pool.mean) * federation.pool.scale).reshape(5, -1)
    p = result.params(int(result.labels[3]))
    hidden = np.maximum(seen @ p["dense_0"]["kernel"] + p["dense_0"]["bias"], 0)
    wanted = softmax(hidden @ p["dense_1"]["kernel"] + p["dense_1"]["bias"])
    found = result.predict(3, x, probabilities=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert np.array_equal(result.predict(3, x), wanted.argmax(axis=1))
    other = 1 - int(result.labels[3])
    assert not np.allclose(
        result.predict(3, x, cluster=other, probabilities=True), wanted, atol=1e-4
    )


def test_clients_that_never_train_choose_as_in_the_run(never_training):
    untrained = [c for c in range(6) if not never_training.arrays["train_size"][c]]
    assert len(untrained) == 2
    for client in untrained:
        table = never_training.confusion(client)
        assert np.trace(table) / table.sum() == pytest.approx(
            never_training.client_accuracy[client], abs=1e-6
        )


def test_mistakes_are_named_in_one_line(result, tmp_path):
    x = np.zeros((1, 8, 8))
    for call, words in (
        (lambda: result.predict(6, x), "client = 6: the federation has clients 0 to 5"),
        (lambda: result.predict(0, x[0]), "x: has the shape (8, 8); must be (samples, 8, 8, 1)"),
        (lambda: result.params(2), "cluster = 2: the run has models 0 to 1"),
        (lambda: result.export(tmp_path / "a.bin"), "must end with .safetensors"),
        (lambda: result.export(tmp_path / "a.safetensors", layout="keras"), 'layout = "keras"'),
    ):
        with pytest.raises(SpecError) as error:
            call()
        assert words in str(error.value)
    bare = cfljax.Result(result.record, {k: v for k, v in result.arrays.items() if k != "models"})
    with pytest.raises(StoreError, match="--keep models"):
        bare.params(0)
    changed = cfljax.Result(result.record | {"id": "0" * 16}, result.arrays)
    with pytest.raises(SpecError, match="cannot be rebuilt"):
        changed.predict(0, x)
    drifting = cfljax.Result(
        result.record, result.arrays | {"labels": np.full((1, 6), -1, np.int16)}
    )
    with pytest.raises(SpecError, match="belonged to no cluster"):
        drifting.predict(0, x)


def test_safetensors_hold_the_parameters(result, tmp_path):
    path = result.export(tmp_path / "m.safetensors", cluster=1)
    with safe_open(path, framework="np") as file:
        arrays, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118 (it is no dict)
    assert about["run"] == result.run and about["cluster"] == "1" and about["model"] == "mlp"
    assert arrays.keys() == {"dense_0.kernel", "dense_0.bias", "dense_1.kernel", "dense_1.bias"}
    assert np.array_equal(arrays["dense_1.kernel"], result.params(1)["dense_1"]["kernel"])
    in_order = [
        arrays[name].ravel() for name in sorted(arrays)
    ]  # as the flat vector: layers by name, bias before kernel
    assert np.array_equal(np.concatenate(in_order), result.models[1])
    torch = load_file(result.export(tmp_path / "t.safetensors", cluster=1, layout="torch"))
    assert np.array_equal(torch["dense_0.weight"], arrays["dense_0.kernel"].T)


def network(name, options, shape, classes):
    """(model, params, x): a network of the package, drawn at random."""
    import jax

    from cfljax import models

    model = models.build(name, options, shape, classes)
    flat = np.random.default_rng(0).normal(0, 0.3, model.size).astype(np.float32)
    x = np.random.default_rng(1).normal(size=(3, *shape)).astype(np.float32)
    logits, params = jax.device_get(
        jax.jit(lambda flat, x: (model.forward(p := model.unravel(flat), x), p))(flat, x)
    )
    return logits, params, x


def convolved(x, weight, bias):
    """f64[B, O, H, W]: a convolution that keeps the size, of x f64[B, I, H, W] with weights [O, I,
    k, k], as PyTorch defines it."""
    side = weight.shape[-1]
    around = np.pad(x, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (side, side), axis=(2, 3))
    return np.einsum("bihwkl,oikl->bohw", windows, weight) + bias[None, :, None, None]


def test_a_convolutional_state_dict_computes_the_same_with_channels_first():
    logits, params, x = network("cnn", {"channels": [3, 4], "kernel": 3, "dense": [5]}, (8, 8), 10)
    state = export.state_dict(params)
    z = x[:, None]
    for layer in ("conv_0", "conv_1"):
        z = convolved(z, state[f"{layer}.weight"], state[f"{layer}.bias"])
        b, c, h, w = z.shape
        z = np.maximum(z.reshape(b, c, h // 2, 2, w // 2, 2).max(axis=(3, 5)), 0)
    z = z.reshape(3, -1)
    z = np.maximum(z @ state["head.dense_0.weight"].T + state["head.dense_0.bias"], 0)
    np.testing.assert_allclose(
        z @ state["head.dense_1.weight"].T + state["head.dense_1.bias"],
        logits,
        rtol=1e-4,
        atol=1e-4,
    )


def test_pytorch_loads_a_convolutional_network():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    logits, params, x = network("cnn", {"channels": [3, 4], "kernel": 3, "dense": [5]}, (8, 8), 10)

    class Cnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv_0, self.conv_1 = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
            self.head = nn.ModuleDict({"dense_0": nn.Linear(16, 5), "dense_1": nn.Linear(5, 10)})

        def forward(self, x):
            for conv in (self.conv_0, self.conv_1):
                x = torch.relu(torch.max_pool2d(conv(x), 2))
            return self.head["dense_1"](torch.relu(self.head["dense_0"](x.flatten(1))))

    module = Cnn()
    module.load_state_dict(
        {name: torch.from_numpy(array) for name, array in export.state_dict(params).items()}
    )
    with torch.no_grad():
        np.testing.assert_allclose(
            module(torch.from_numpy(x[:, None])).numpy(), logits, rtol=1e-4, atol=1e-4
        )


def test_pytorch_loads_an_lstm():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    logits, params, x = network("lstm", {"width": 4, "layers": 1, "dense": 3}, (5, 2), 2)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm_0 = nn.LSTM(2, 4, batch_first=True)
            self.dense_0, self.dense_1 = nn.Linear(4, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.dense_1(self.dense_0(self.lstm_0(x)[0][:, -1]))

    module = Lstm()
    module.load_state_dict(
        {name: torch.from_numpy(array) for name, array in export.state_dict(params, 1.0).items()}
    )
    with torch.no_grad():
        np.testing.assert_allclose(
            module(torch.from_numpy(x)).numpy(), logits, rtol=1e-4, atol=1e-4
        )


def test_an_lstm_state_dict_computes_the_same():
    logits, params, x = network("lstm", {"width": 4, "layers": 1, "dense": 3}, (5, 2), 2)
    state = export.state_dict(params, 1.0)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    h, c = np.zeros((3, 4)), np.zeros((3, 4))
    for t in range(5):
        gates = x[:, t] @ state["lstm_0.weight_ih_l0"].T + h @ state["lstm_0.weight_hh_l0"].T
        i, f, g, o = np.split(
            gates + state["lstm_0.bias_ih_l0"] + state["lstm_0.bias_hh_l0"], 4, axis=1
        )
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    z = h @ state["dense_0.weight"].T + state["dense_0.bias"]
    np.testing.assert_allclose(
        z @ state["dense_1.weight"].T + state["dense_1.bias"], logits, rtol=1e-4, atol=1e-4
    )


def test_per_fedavg_names_the_global_model_and_refuses_that_of_a_client(tmp_path):
    result = cfljax.run("per_fedavg", DIGITS, "mclr", rounds=1, alpha=0.1)
    for ask in (
        lambda: result.confusion(1),
        lambda: result.predict(1, np.zeros((1, 8, 8))),
        lambda: result.export_clusters(tmp_path),
    ):
        with pytest.raises(
            SpecError,
            match="per_fedavg: each client is scored with a model that it adapts .* give cluster = "
            "0",
        ) as error:
            ask()
        assert "\n" not in str(error.value)
    assert result.confusion(1, cluster=0).sum() == len(result.samples(1)[1])
    assert result.export(tmp_path / "w.safetensors", cluster=0).is_file()


def test_a_result_that_was_asked_can_be_pickled(result):
    before = result.confusion(0)
    assert np.array_equal(pickle.loads(pickle.dumps(result)).confusion(0), before)


class Net:
    """A network of a width, as a pair of functions with equal sources."""

    def __new__(cls, width):
        def init(key):
            import jax

            one, two = jax.random.split(key)
            return {
                "in": 0.1 * jax.random.normal(one, (4, width)),
                "out": 0.1 * jax.random.normal(two, (width, 4)),
            }

        def apply(params, x):
            return x @ params["in"] @ params["out"]

        return init, apply


BLOBS = {"name": "blobs", "samples": 60, "features": 4, "clients": 3}


def test_networks_in_threads_are_trained_and_asked_each_by_itself():
    nets = [Net(width) for width in (4, 7)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda net: cfljax.run("fedavg", BLOBS, net, rounds=1), nets))
    assert [result.models.shape[1] for result in results] == [32, 56]
    assert [result.params()["in"].shape[1] for result in results] == [4, 7]
    for result in results:
        correct = sum(np.trace(result.confusion(client)) for client in range(3))
        assert correct / sum(
            len(result.samples(client)[1]) for client in range(3)
        ) == pytest.approx(result.summary["accuracy_last"])
    again = cfljax.run("fedavg", BLOBS, nets[0], rounds=1)
    assert again.run == results[0].run and np.array_equal(again.models, results[0].models)
