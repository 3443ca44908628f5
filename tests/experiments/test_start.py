"""Runs that start from the model of another run: whole, with a frozen body, with adapters."""

import dataclasses
import hashlib
import warnings

import flax.linen as nn
import numpy as np
import pytest

import cfljax
from cfljax import keys
from cfljax.config import read_spec
from cfljax.errors import SpecError, SpecWarning
from cfljax.experiment import assemble
from cfljax.experiment.assemble import host_federation
from cfljax.experiment.batching import make_batches
from cfljax.experiment.dry_run import dry_run
from cfljax.experiment.model_size import count_run_size
from cfljax.results.result import Result
from tests.often import rarely

DATA = {
    "name": "blobs",
    "samples": 320,
    "features": 6,
    "classes": 4,
    "partition": "iid",
    "clients": 4,
    "normalise": "none",
}
MODEL = {"name": "mlp", "hidden": [8]}
TRAIN = {"rounds": 2, "batch": 10, "lr": 0.1}
FROZEN = {"weights": "FILE", "frozen": "body"}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    run = cfljax.run("fedavg", data=DATA, model=MODEL, **TRAIN)
    return (
        run,
        run.export(folder / "jax.safetensors"),
        run.export(folder / "torch.safetensors", layout="torch"),
    )


def from_file(begun, method="fedavg", data=None, train=None, **more):
    return cfljax.run(
        method,
        data=DATA | (data or {}),
        model=MODEL | {"weights": str(begun[1])} | more,
        **TRAIN | (train or {}),
    )


def test_a_run_goes_on_where_the_exported_one_ended(begun):
    before = begun[0].history
    after = from_file(begun).history
    np.testing.assert_allclose(
        [after["accuracy"][0], after["loss"][0]],
        [before["accuracy"][-1], before["loss"][-1]],
        rtol=1e-5,
    )
    assert after["loss"][-1] < after["loss"][0]


def two_models(begun):
    """The result of a run, as if it had two models."""
    models = np.stack([begun[0].models[0], -begun[0].models[0]])
    return Result(begun[0].record, begun[0].arrays | {"models": models})


def model_of(file, **more):
    model = MODEL | {"weights": str(file)} | more
    (run,) = read_spec({"data": DATA, "model": model, "train": TRAIN, "method": "fedavg"}).runs()
    return assemble.model_of(run, host_federation(run))


def test_the_clusters_of_a_run_begin_with_those_of_another(begun, tmp_path):
    both = two_models(begun)
    for layout in ("jax", "torch"):
        file = both.export(tmp_path / f"{layout}.safetensors", cluster="all", layout=layout)
        first_models = model_of(file).first_models
        assert np.array_equal(first_models(keys.root(0), 2), both.models)
        with pytest.raises(SpecError, match="has 2 models, and the method begins with 3"):
            first_models(keys.root(0), 3)
    with pytest.raises(SpecError, match="has 2 models, and model.frozen begins with one"):
        model_of(file, frozen="body")
    apart = np.asarray(model_of(file, jitter=0.1).first_models(keys.root(0), 2)) - both.models
    assert apart.any(axis=1).all() and not np.array_equal(*apart)
    with pytest.raises(SpecError, match='cluster = "every"'):
        both.export(tmp_path / "no.safetensors", cluster="every")
    # A file of one model with the axis of models is as one without
    alone = model_of(begun[0].export(tmp_path / "alone.safetensors", cluster="all"))
    assert alone.first_models is None
    assert np.array_equal(alone.init(keys.root(0)), begun[0].models[0])


def test_given_clusters_begin_with_given_models(begun, tmp_path):
    both = two_models(begun)
    file = both.export(tmp_path / "both.safetensors", cluster="all")
    labels = np.arange(DATA["clients"]) % 2
    train = {"plan": {"quick": False}, "lr": 0.0}
    held = cfljax.run(
        "one_shot",
        DATA,
        MODEL | {"weights": str(file)},
        rounds=1,
        clusters=2,
        labels=labels,
        train=train,
    )
    assert (held.labels_history == labels).all() and np.array_equal(held.models, both.models)
    with pytest.raises(SpecError, match="given clusters are labels of one_shot"):
        cfljax.run("ifca", DATA, MODEL, rounds=1, labels=labels)


def test_a_run_is_known_by_the_contents_of_its_file_wherever_it_lies(begun, tmp_path):
    def run_of(**model):
        return read_spec(
            {"data": DATA, "model": MODEL | model, "train": TRAIN, "method": "fedavg"}
        ).runs()[0]

    moved = tmp_path / "elsewhere.safetensors"
    moved.write_bytes(begun[1].read_bytes())
    here, there, other = (run_of(weights=str(file)) for file in (begun[1], moved, begun[2]))
    assert here.id == there.id != other.id
    assert (
        len(
            {
                run_of().id,
                here.id,
                run_of(weights=str(moved), jitter=0.1).id,
                run_of(weights=str(moved), frozen="body").id,
            }
        )
        == 4
    )
    assert here.contents["model.weights"] == hashlib.sha256(moved.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "method",
    [rarely("fedavg"), {"name": "ifca", "clusters": 2}, rarely({"name": "fedprox", "mu": 0.1})],
)
def test_a_frozen_body_gives_what_freezing_it_in_training_gives(method, begun):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        slow = from_file(begun, method, train={"freeze": "body"})
        fast = from_file(begun, method, frozen="body")
    assert fast.models.shape[1] == 8 * 4 + 4 and slow.models.shape[1] == 6 * 8 + 8 + 36
    for name in ("accuracy", "loss", "train_loss"):
        np.testing.assert_allclose(fast.history[name], slow.history[name], rtol=2e-5)
    for layer in ("dense_0", "dense_1"):
        np.testing.assert_allclose(
            fast.params()[layer]["kernel"], slow.params()[layer]["kernel"], atol=1e-5
        )
    np.testing.assert_array_equal(fast.history["bytes_up"], slow.history["bytes_up"])
    x, _ = fast.samples(1)
    np.testing.assert_allclose(
        fast.predict(1, x, probabilities=True, prepared=True),
        slow.predict(1, x, probabilities=True, prepared=True),
        atol=1e-5,
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    data = {
        "name": "digits",
        "partition": "rotated",
        "groups": 2,
        "clients": 4,
        "samples_per_client": 40,
    }
    model = {"name": "cnn", "channels": [2], "kernel": 3, "dense": [4]}
    run = cfljax.run("fedavg", data=data, model=model, **TRAIN)
    return data, model | {
        "weights": str(run.export(tmp_path_factory.mktemp("pictures") / "cnn.safetensors"))
    }


@pytest.mark.parametrize("test", ["own", rarely("global")])
def test_features_are_of_what_each_client_sees(test, pictures):
    data, model = pictures
    slow = cfljax.run("fedavg", data=data | {"test": test}, model=model, freeze="body", **TRAIN)
    fast = cfljax.run(
        "fedavg", data=data | {"test": test}, model=model | {"frozen": "body"}, **TRAIN
    )
    for name in ("accuracy", "loss", "train_loss"):
        np.testing.assert_allclose(fast.history[name], slow.history[name], rtol=2e-4)


def test_only_adapters_travel_and_clusters_are_found_on_them(begun):
    data = {"partition": "label_swap", "groups": 2, "clients": 6}
    lora = {"rank": 2, "alpha": 4, "where": "dense", "head": True}
    method = {"name": "ifca", "clusters": 2}
    run = from_file(begun, method, data, {"lora": lora, "rounds": 6, "lr": 0.5}, jitter=0.3)
    d = 2 * (6 + 8) + 8 * 4 + 4
    assert run.models.shape == (2, d)
    assert run.history["bytes_up"][-1] == 6 * 6 * 4 * d  # rounds, participants, bytes, numbers
    assert run.history["ari"][-1] == 1.0
    old, new = begun[0].params(), run.params(0)
    assert np.linalg.matrix_rank(new["dense_0"]["kernel"] - old["dense_0"]["kernel"], tol=1e-4) == 2
    np.testing.assert_array_equal(new["dense_0"]["bias"], old["dense_0"]["bias"])


def test_equal_starts_of_clusters_that_are_chosen_by_loss_are_warned_of(begun):
    with pytest.warns(SpecWarning, match=r"all clusters begin equal.*model.jitter"):
        from_file(begun, {"name": "ifca", "clusters": 2}, train={"rounds": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpecWarning)
        from_file(begun, {"name": "ifca", "clusters": 2}, train={"rounds": 1}, jitter=0.1)


def test_a_dry_run_says_what_the_features_take(begun):
    spec = {
        "data": DATA,
        "model": MODEL | {"weights": str(begun[1]), "frozen": "body"},
        "train": TRAIN,
        "method": "fedavg",
    }
    run = read_spec(spec).runs()[0]
    size = count_run_size(run, host_federation(run))
    assert (size.parameters, size.features) == (36, 320 * 8)
    assert "features of the frozen body, computed once: 10.2 kB" in dry_run(
        make_batches([run], 1), size
    )


@pytest.mark.parametrize(("model", "train", "data", "words"), [
    ({"weights": "nowhere.safetensors"}, {}, {}, "there is no such file"),
    ({"frozen": "body"}, {}, {}, "give model.weights, or take train.freeze"),
    ({"frozen": "head", "weights": "FILE"}, {}, {}, "model.frozen"), ({"jitter": 0.1}, {}, {}, "give model.weights"),
    ({"name": "transformer", "predict": "every"} | FROZEN, {}, {}, "its features are of the last token"),
    ({}, {"lora": {"rank": 2}}, {}, "train.lora: adapts"), ({"weights": "FILE"}, {"lora": {"rank": 0}}, {}, "train.lora.rank = 0"),
    ({"weights": "FILE"}, {"lora": {"wher": "all"}}, {}, 'did you mean "where"'),
    ({"weights": "FILE"}, {"lora": {"where": "heads"}}, {}, "train.lora.where"),
    (FROZEN, {"lora": {"rank": 2}}, {}, "leave out one"), (FROZEN, {"freeze": "body"}, {}, "train.freeze needs the parts"),
    (FROZEN, {}, {"drift": {"at": [1], "what": "labels"}, "partition": "label_swap", "groups": 2}, "data.drift"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_before_any_data_are_read(
    model, train, data, words, begun
):
    model = {name: str(begun[1]) if value == "FILE" else value for name, value in model.items()}
    with pytest.raises(SpecError) as raised:
        whole = model if "name" in model else MODEL | model
        read_spec(
            {"data": DATA | data, "model": whole, "train": TRAIN | train, "method": "fedavg"}
        ).runs()
    assert words in str(raised.value) and "\n" not in str(raised.value)


class Own(nn.Module):
    last: bool

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(5)(x))
        x = nn.Dense(4)(x)
        return x if self.last else x * 2


@pytest.mark.parametrize("last", [True, False])
def test_a_model_of_ones_own_may_have_a_frozen_body_if_its_head_is_its_last_step(last, tmp_path):
    @cfljax.register_model("mine")
    def mine(options, sample_shape, classes):
        return Own(last)

    begun = cfljax.run("fedavg", data=DATA, model="mine", **TRAIN)
    file = str(begun.export(tmp_path / "mine.safetensors"))
    frozen = {"name": "mine", "weights": file, "frozen": "body"}
    if not last:
        with pytest.raises(SpecError, match="no head that is its last step; take train.freeze"):
            cfljax.run("fedavg", data=DATA, model=frozen, **TRAIN)
        return
    assert cfljax.run("fedavg", data=DATA, model=frozen, **TRAIN).models.shape == (1, 24)


@pytest.mark.parametrize(("model", "data", "words"), [
    ({"vocabulary": 5}, {}, "model.vocabulary: token 9 is beyond its 5 tokens; give 10 or more"), ({}, {}, "give 10 or more"),
    ({"vocabulary": 10}, {"normalise": "pixel"}, "would change token ids"), ({"vocabulary": 10}, {"shift": 0.5}, "needs token ids"),
])  # fmt: skip
def test_numbers_that_are_no_tokens_are_refused(model, data, words):
    @dataclasses.dataclass(frozen=True)
    class Options:
        shift: float = cfljax.option(0.0, "added to all")

    @cfljax.register_data("texts", Options)
    def texts(options, rng):
        x = (np.arange(80).reshape(20, 4) % 10 + options.shift).astype(np.float32)
        return {"x_train": x, "y_train": np.arange(20) % 3, "x_test": x[:3], "y_test": [0, 1, 2]}

    given = {"name": "texts", "partition": "iid", "clients": 2, "normalise": "none"} | data
    small = {"name": "transformer", "task": "next", "width": 4, "depth": 1, "heads": 2} | model
    with pytest.raises(SpecError) as raised:
        cfljax.run("fedavg", data=given, model=small, rounds=1)
    assert words in str(raised.value) and "\n" not in str(raised.value)
