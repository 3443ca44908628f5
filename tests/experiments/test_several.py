"""Samples with several labels: from a file to what methods make of them, and what cannot be."""

import numpy as np
import pytest

import cfljax
from cfljax import data, models
from cfljax.commands import describe
from cfljax.data import arrays
from cfljax.errors import DataError, SpecError
from tests.federation.helpers import fake, parts
from tests.importing.helpers import imported
from tests.often import rarely

SET = {"name": "tags", "partition": "iid", "clients": 4}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 3))
    x = rng.normal(size=(240, 6)).astype(np.float32)
    y = (x @ weight > 0.5).astype(np.int32)
    np.savez(
        tmp_path / "tags.npz",
        x_train=x[:160],
        y_train=y[:160],
        x_test=x[160:],
        y_test=y[160:],
        user_train=np.arange(160) % 4,
    )
    return tmp_path


@pytest.mark.parametrize(
    "plan",
    [{"gram": 64}, rarely({"gram": 0, "lanes": 1}), rarely({"gram": 0, "lanes": 0})],
    ids=["gram", "one", "all"],
)
def test_a_round_is_that_of_plain_gradients(folder, plan):
    """Four clients, one full-batch step each from zero; then their mean."""
    source = data.load("tags")
    options = {"name": "tags", "partition": "user", "clients": 0, "test": "global"}
    train = {"rounds": 1, "steps": 1, "batch": 40, "lr": 0.5, "plan": plan}
    result = cfljax.run("fedavg", options, {"name": "mclr", "init": "zeros"}, train=train)
    x, y, lr = source.x_train.astype(np.float64), source.y_train, 0.5
    moved = []
    for c in range(4):
        mine = source.user_train == c
        error = (0.5 - y[mine]) / 3  # the mean over three labels
        moved.append((-lr * x[mine].T @ error / mine.sum(), -lr * error.mean(0)))
    weight, bias = (np.mean(each, axis=0) for each in zip(*moved, strict=True))
    found = result.params(0)["dense_0"]
    assert np.allclose(found["kernel"], weight, atol=1e-6) and np.allclose(
        found["bias"], bias, atol=1e-6
    )
    logits = source.x_test @ weight + bias
    right = ((logits > 0) == source.y_test).all(1).mean()
    assert np.isclose(result.summary["accuracy_last"], right)
    chance = result.predict(0, source.x_test, probabilities=True)
    assert np.allclose(chance, 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert np.array_equal(result.predict(0, source.x_test), (logits > 0).astype(int))
    with pytest.raises(SpecError, match="confusion"):
        result.confusion(0)


@pytest.mark.parametrize("method", ["ifca", rarely("ditto")])
def test_methods_learn_several_labels(folder, method):
    train = {"lr": 1.0, "metrics": ["macro_f1", "average_precision"]}
    result = cfljax.run(
        method, SET, "mclr", rounds=8, train=train, **({"clusters": 2} if method == "ifca" else {})
    )
    assert result.summary["accuracy_last"] > 0.5
    assert result.history["macro_f1"][-1] > 0.8 and result.history["average_precision"][-1] > 0.85


@pytest.mark.parametrize(
    "name",
    ["shards", "classes", "dirichlet", "pachinko", "label_swap", "label_permutation", "fedprox"],
)
def test_partitions_by_label_refuse_several(name):
    y = np.eye(10, dtype=np.int32)
    source = fake()
    source = source._replace(
        y_train=y[source.y_train], y_test=y[source.y_test], coarse=np.zeros(10, np.int32)
    )
    with pytest.raises(SpecError, match="needs one label per sample") as error:
        parts(name, source, clients=10)
    assert "use iid" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["iid", "quantity", "rotated", "feature_shift", "corrupted"])
def test_other_partitions_divide_them(name, folder):
    y = np.eye(10, dtype=np.int32)
    source = fake()
    several = source._replace(y_train=y[source.y_train], y_test=y[source.y_test])
    made = parts(name, several, clients=10)
    counts = describe.seen_counts(made, made.source or several)
    assert counts.sum() == sum(map(len, made.train)) and all(len(rows) for rows in made.test)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "fedem"}, "mixes class probabilities"),
        ({"method": "fedrc"}, "mixes class probabilities"),
        ({"method": "ccs_rfedavg"}, "counts samples by label"),
        ({"method": "pacfl"}, 'method.pacfl.how = "vectors": .*; set how = "smallest"'),
        ({"train": {"attack": {"name": "label_flip", "share": 0.25}}}, "take another attack"),
        ({"data": SET | {"drift": {"at": [1], "what": "labels"}}}, "data.drift.what"),
    ],
)
def test_what_takes_a_sample_to_have_one_label_is_refused(folder, change, says):
    given = {"method": "fedavg", "data": SET, "model": "mclr", "rounds": 2} | change
    with pytest.raises(SpecError, match=says) as error:
        cfljax.run(**given)
    assert "\n" not in str(error.value)


def test_a_model_with_one_output_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    x, y = np.zeros((20, 4, 3), np.float32), np.tile([[0, 1], [1, 1]], (10, 1))
    np.savez(tmp_path / "two.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(SpecError, match="one output for two classes"):
        cfljax.run("fedavg", {"name": "two", "partition": "iid", "clients": 2}, "lstm", rounds=1)


def test_a_model_with_a_loss_of_its_own_is_refused():
    options = {"predict": "every", "width": 8, "heads": 2, "depth": 1}
    with pytest.raises(SpecError, match="a loss of its own"):
        models.build("transformer", options, (6,), 5, several=True)


def test_arrays_of_several_labels_are_imported_and_checked(folder, monkeypatch):
    y = np.random.default_rng(0).integers(2, size=(50, 3))
    np.savez(folder / "raw.npz", x=np.zeros((50, 4)), y=y)
    imported(folder / "raw.npz", "--name", "mine")
    source = data.load("mine")
    assert (
        source.classes == 3 and source.y_train.shape == (40, 3) and source.y_test.shape == (10, 3)
    )
    named = {"x_train": np.zeros((4, 2), np.float32), "x_test": np.zeros((4, 2), np.float32)}
    for bad, says in (
        ({"y_train": np.full((4, 3), 2), "y_test": np.zeros((4, 3), int)}, r"argmax\(axis=1\)"),
        ({"y_train": np.zeros((4, 3)), "y_test": np.zeros((4, 3), int)}, "must be 0 or 1"),
        (
            {"y_train": np.zeros((4, 3), int), "y_test": np.zeros((4, 2), int)},
            "must have the same labels",
        ),
        (
            {"y_train": np.zeros((4, 3), int), "y_test": np.zeros(4, int)},
            "must have the same labels",
        ),
        ({"y_train": np.zeros((4, 3, 2), int), "y_test": np.zeros(4, int)}, "of 0 and 1"),
    ):
        with pytest.raises(DataError, match=says):
            arrays.source("s", "s", named | bad)
    with pytest.raises(DataError, match="data.classes says 4"):
        arrays.source(
            "s", "s", named | {"y_train": np.zeros((4, 3), int), "y_test": np.zeros((4, 3), int)}, 4
        )
