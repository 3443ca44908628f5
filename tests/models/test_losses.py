"""Losses other than those of classes: a continuous target, and losses of one's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import mean_squared_error, r2_score

import cfljax
from cfljax import data, models
from cfljax.api import _with_data
from cfljax.config import read_spec
from cfljax.errors import DataError, SpecError
from cfljax.federation import PARTITIONS
from cfljax.federation.pack import pack
from cfljax.federation.quantiles import QUANTILES, to_quantiles
from cfljax.launch.search_plan import plan_search
from cfljax.models.losses import LOSSES
from tests import play
from tests.methods.eight_clients import close
from tests.reference import plain
from tests.reference.fedavg import fedavg
from tests.reference.ifca import ifca
from tests.reference.squares import Squares

MSE = {"name": "mlp", "hidden": [4], "loss": "mse"}
QUICK = {"rounds": 2, "lr": 0.05, "finetune_steps": 0, "plan": {"quick": True}}


@functools.cache
def numbers(samples=120):
    """(x f32[n, 6], y f32[n]): a linear function of x with some noise, another in the second
    half."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, 6)).astype(np.float32)
    slope = np.where(np.arange(samples) < samples // 2, 1.0, -1.0)
    y = slope * (x @ rng.standard_normal(6)) + 0.1 * rng.standard_normal(samples)
    return x, y.astype(np.float32)


def given(**options):
    x, y = numbers()
    return {"x": x, "y": y, "partition": "iid", "clients": 6} | options


@functools.cache
def source():
    x, y = numbers(400)
    names = ("x_train", "y_train", "x_test", "y_test")
    return data.arrays.source(
        "n", "n", dict(zip(names, (x[:320], y[:320], x[320:], y[320:]), strict=True))
    )


def federation():
    """Eight unequal clients."""
    options = PARTITIONS.check("quantity", {"clients": 8}, "data")
    parts = PARTITIONS.entry("quantity").make(
        options, to_quantiles(source()), np.random.default_rng(0)
    )
    return jax.device_put(pack(parts, source(), "none"))


@functools.cache
def model(hidden=None):
    name, options = ("mclr", {}) if hidden is None else ("mlp", {"hidden": [hidden]})
    return models.build(name, options | {"loss": "mse"}, (6,), 1, continuous=True)


@pytest.mark.parametrize("hidden", [None, 4])
def test_fedavg_by_squared_errors_agrees_with_a_plain_loop(hidden):
    states, _, method = play.rounds(
        "fedavg", federation(), work={"epochs": 2, "batch": 5}, lr=0.02, model=model(hidden)
    )
    found, _ = play.models_of(method, states)
    clients = plain.Clients(federation())
    start = np.asarray(found[0][0], np.float64)
    wanted = fedavg(Squares(6, hidden), clients, start, len(found) - 1, 5, 0.02, epochs=2, batch=5)
    for ours, theirs in zip(found[1:], wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_ifca_by_squared_errors_agrees_with_a_plain_loop():
    options = {"estimate": "full", "aggregate": "model", "average": "samples"}
    work = {"epochs": 2, "batch": 5}
    states, _, method = play.rounds(
        "ifca",
        federation(),
        work=work,
        lr=0.02,
        model=model(4),
        clusters=2,
        reseed="never",
        **options,
    )
    wanted = ifca(
        Squares(6, 4),
        plain.Clients(federation()),
        states[0].models,
        0,
        len(states) - 1,
        5,
        0.02,
        **work,
        **options,
        reseeding="never",
    )
    close(states, method, wanted)
    assert len(np.unique(wanted[-1][1])) > 1
    assert (plain.Clients(federation()).train[0][1] % 1 != 0).all()


@pytest.mark.parametrize("test", ["own", "global"])
def test_scores_are_those_of_scikit_learn(test):
    result = cfljax.run("ifca", given(test=test), MSE, train=QUICK, clusters=2)
    truth, predicted = [], []
    for client in range(6):
        x, y = result.samples(client)
        truth.append(y)
        predicted.append(result.predict(client, x, prepared=True))
    truth, predicted = np.concatenate(truth), np.concatenate(predicted)
    assert np.isin(truth, numbers()[1]).all()
    summary = result.summary
    assert summary["rmse_last"] ** 2 == pytest.approx(mean_squared_error(truth, predicted))
    assert summary["r2_last"] == pytest.approx(r2_score(truth, predicted), rel=1e-4)
    assert summary["loss_last"] == pytest.approx(summary["rmse_last"] ** 2)
    assert not [name for name in result.history if "accuracy" in name]
    assert result.client_accuracy.mean() == pytest.approx(
        result.history["r2_client_mean"][-1], rel=1e-5
    )


def test_a_run_that_diverges_is_found_in_units_of_the_target():
    large = given(y=1e5 * numbers()[1])
    result = cfljax.run("fedavg", large, MSE, train=QUICK | {"lr": 1e-9})
    assert result.status == "done" and result.summary["loss_last"] > 1e8
    assert cfljax.run("fedavg", given(), MSE, train=QUICK | {"lr": 1e4}).status == "diverged"


def test_integers_may_be_a_target_and_floats_may_be_whole():
    x, y = numbers()
    whole = np.round(10 * y)
    runs = [
        cfljax.run("fedavg", given(y=each), MSE, train=QUICK)
        for each in (whole.astype(np.int64), whole)
    ]
    assert runs[0].summary["rmse_last"] == runs[1].summary["rmse_last"] > 5


def test_partitions_by_label_deal_the_deciles():
    labels = to_quantiles(source())
    y = np.concatenate([source().y_train, source().y_test])
    found = np.concatenate([labels.y_train, labels.y_test])
    assert labels.classes == QUANTILES and (np.bincount(found) == len(y) // QUANTILES).all()
    assert all(y[found == k].max() <= y[found == k + 1].min() for k in range(QUANTILES - 1))
    result = cfljax.run(
        "fedavg",
        given(partition="shards", shards=1, clients=3, test="global"),
        MSE,
        train=QUICK | {"rounds": 1},
        callback=lambda *_: None,
    )
    assert result.summary["r2_last"] < 1
    equal = source()._replace(y_train=np.zeros(320, np.float32), y_test=np.ones(80, np.float32))
    assert to_quantiles(equal).classes == 2


REFUSED = {
    "fedproto": ({"method": "fedproto"}, "one class each"),
    "fedem": ({"method": "fedem"}, "one class each"),
    "flux": ({"method": "flux"}, "one class each"),
    "pacfl": ({"method": "pacfl"}, "one class per sample"),
    "macro_f1": ({"train": {"metrics": ["macro_f1"]}}, "train.metrics"),
    "label_flip": (
        {"train": {"attack": {"name": "label_flip", "share": 0.3}}},
        "train.attack.name",
    ),
    "label view": ({"data": {"partition": "label_permutation"}}, "label_permutation"),
    "drift": (
        {"data": {"drift": {"at": [1], "what": "labels", "share": 0.5}}},
        "data.drift.what",
    ),
    "new clients": ({"data": {"new_clients": {"share": 0.5}}}, "data.new_clients"),
    "softmax": ({"model": "mlp"}, 'model.loss = "mse"'),
    "unknown": ({"model": {"name": "mlp", "loss": "msee"}}, 'did you mean "mse"'),
    "tokens": (
        {"data": {"normalise": "none"}, "model": {"name": "transformer", "loss": "mse"}},
        "model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_classes_says_so(case):
    tables, message = REFUSED[case]
    own = given(continuous=True) | tables.get("data", {})
    train = QUICK | tables.get("train", {})
    with pytest.raises((SpecError, DataError), match=message) as error:
        cfljax.run(tables.get("method", "fedavg"), own, tables.get("model", MSE), train=train)
    assert "\n" not in str(error.value)


def absolute(outputs, y):
    return jnp.abs(outputs[:, 0] - y)


def near(outputs, y):
    return (jnp.abs(outputs[:, 0] - y) < 1).astype(jnp.float32)


def focal(outputs, y):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], 1)[:, 0]
    return -((1 - jnp.exp(chosen)) ** 2) * chosen


@pytest.fixture
def own(monkeypatch):
    """Registered losses, which leave with the test."""
    monkeypatch.setattr(LOSSES, "_lines", dict(LOSSES._lines))
    monkeypatch.setattr(LOSSES, "_origins", dict(LOSSES._origins))
    cfljax.register_loss("absolute", absolute, near)
    cfljax.register_loss("focal", focal)


def test_a_loss_of_ones_own_has_columns_of_its_score(own):
    result = cfljax.run("ditto", given(validation=0.2), MSE | {"loss": "absolute"}, train=QUICK)
    errors, close_by = [], []
    for client in range(6):
        x, y = result.samples(client)
        gap = np.abs(result.predict(client, x, prepared=True) - y)
        errors.append(gap)
        close_by.append(gap < 1)
    assert result.summary["loss_last"] == pytest.approx(np.concatenate(errors).mean(), rel=1e-5)
    assert result.summary["near_last"] == pytest.approx(np.concatenate(close_by).mean(), rel=1e-5)
    assert {"near_worst10", "near_client_std", "val_near"} <= result.history.keys()
    assert "rmse" not in result.history


def test_a_loss_of_classes_keeps_the_accuracy(own):
    blobs = {"name": "blobs", "samples": 120, "features": 6, "classes": 4, "clients": 6}
    result = cfljax.run("fedproto", blobs, MSE | {"loss": "focal"}, train=QUICK)
    assert 0 <= result.summary["accuracy_last"] <= 1


def test_another_loss_is_another_run(own):
    def ids():
        table = {"data": "digits", "method": "fedavg", "train": QUICK}
        losses = ({}, {"loss": "mse"}, {"loss": "absolute"})
        return [
            read_spec(table | {"model": {"name": "mclr"} | loss}).runs()[0].id for loss in losses
        ]

    before = ids()
    assert len(set(before)) == 3
    cfljax.register_loss("absolute", absolute, near, outputs=1, version=2)
    assert ids()[:2] == before[:2] and ids()[2] != before[2]


def test_a_loss_that_is_no_number_per_sample_is_refused(own):
    cfljax.register_loss("wide", lambda outputs, y: (outputs - y) ** 2, near)
    with pytest.raises(SpecError, match="a number per sample"):
        cfljax.run("fedavg", given(), MSE | {"loss": "wide"}, train=QUICK)
    with pytest.raises(SpecError, match="define the score by def"):
        cfljax.register_loss("bare", absolute, lambda outputs, y: y)
    with pytest.raises(SpecError, match="define the score by def"):
        cfljax.register_loss("bare", absolute, loss)
    with pytest.raises(SpecError, match="function of"):
        cfljax.register_loss("bare", 3, near)


def loss(outputs, y):
    """Its name is that of a column that runs have already."""
    return y


def test_tables_and_searches_name_the_score(tmp_path):
    spec = {
        "data": given(validation=0.2),
        "model": MSE,
        "method": ["fedavg", "ditto"],
        "train": QUICK,
        "seeds": [0, 1],
    }
    results = cfljax.sweep(spec, tmp_path / "out", quiet=True)
    frame = results.to_pandas()
    assert {"r2_last", "rmse_last", "r2_worst10"} <= set(frame.columns)
    assert not [name for name in frame.columns if "accuracy" in name]
    assert results.best("r2 worst tenth") and len(results.best())
    report = results.report(tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert '"score":"r2"' in page and "RMSE" in page and report is not None
    named = _with_data(spec)
    plan = plan_search(read_spec(named | {"train": QUICK | {"lr": [0.01, 0.1]}}, tuned=True))
    assert plan.metric == "val_r2"


def test_a_table_is_imported_with_a_continuous_target(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "data"))
    x, y = numbers()
    lines = [
        "a,b,price",
        *(f"{a:.3f},{b:.3f},{c:.3f}" for (a, b), c in zip(x[:, :2], y, strict=True)),
    ]
    (tmp_path / "houses.csv").write_text("\n".join(lines))
    table = cfljax.import_data(tmp_path / "houses.csv", label="price", continuous=True)
    assert table["partition"] == "iid"
    result = cfljax.run("fedavg", table, MSE, train=QUICK)
    assert np.isfinite(result.summary["r2_last"])
    (tmp_path / "bad.csv").write_text("a,price\n1,2.5\n2,cheap\n")
    with pytest.raises(DataError, match="to be a number"):
        cfljax.import_data(tmp_path / "bad.csv", label="price", continuous=True)
