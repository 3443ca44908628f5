"""`data.validation` and `train.stop` from the spec to the record."""

import dataclasses

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.simulate import simulate
from cfljax.errors import DataError, SpecError
from cfljax.experiment.assemble import assemble_batch, host_federation
from cfljax.experiment.batching import make_batches
from cfljax.federation import PARTITIONS
from cfljax.federation.validation import hold_out
from tests import toy

BLOBS = {
    "name": "blobs",
    "samples": 240,
    "features": 6,
    "classes": 4,
    "clients": 6,
    "validation": 0.25,
}
TRAIN = {"rounds": 3, "lr": 0.2}


def runs(data=None, method="fedavg", train=None):
    spec = {
        "data": BLOBS | (data or {}),
        "model": "mclr",
        "train": TRAIN | (train or {}),
        "method": [method],
        "seeds": [0],
    }
    return read_spec(spec).runs()


def rows_of(split, client):
    start, count = int(split.start[client]), int(split.count[client])
    return np.asarray(split.rows)[start : start + count].tolist()


def apart(sizes):
    """Rows of clients that hold no sample twice."""
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def test_a_share_is_set_aside_at_least_one_of_three_and_never_all():
    sizes = [0, 1, 2, 3, 9, 10, 100]
    rows = apart(sizes)
    for share in (0.01, 0.3, 0.99):
        train, valid = hold_out(rows, share, 5)
        for own, kept, held in zip(rows, train, valid, strict=True):
            n = len(own)
            assert sorted([*kept, *held]) == own.tolist() and kept.tolist() == sorted(kept)
            assert len(held) == (0 if n < 3 else min(max(1, round(share * n)), n - 1))
    again = hold_out(rows, 0.3, 5)[1]
    other = hold_out(rows, 0.3, 6)[1]
    assert [(each - own[0]).tolist() for each, own in zip(again[3:6], rows[3:6], strict=True)] == [
        [2],
        [0, 5, 8],
        [3, 7, 8],
    ]
    assert again[6].tolist() != other[6].tolist()


def test_samples_of_several_clients_are_held_out_for_all_of_them_or_for_none():
    rng = np.random.default_rng(0)
    rows = [
        part for _ in range(4) for part in np.split(rng.permutation(240), [2, 5, 60, 150])
    ]  # four groups of five clients
    train, valid = hold_out(rows, 0.25, 1)
    held = np.unique(np.concatenate(valid))
    assert not np.isin(np.concatenate(train), held).any()
    sizes = np.array([len(each) for each in rows])
    found = np.array([len(each) for each in valid])
    assert (
        (found[sizes < 3] == 0).all()
        and (found[sizes >= 3] > 0).all()
        and (found < np.maximum(sizes, 1)).all()
    )
    assert 0.2 < found.sum() / sizes.sum() <= 0.25
    with pytest.raises(SpecError, match="no client has 3 training samples"):
        hold_out(apart([2, 1, 2]), 0.5, 0)


SMALL = {
    "digits": {"name": "digits", "clients": 12, "validation": 0.2},
    "new": {"share": 0.25, "shots": 3},
}


@pytest.mark.parametrize("more", [{}, {"new_clients": SMALL["new"]}], ids=["all", "newcomers"])
@pytest.mark.parametrize("partition", sorted(PARTITIONS))
def test_nobody_trains_on_a_sample_that_is_validation_for_anybody(partition, more):
    options = {
        "corrupted": {"groups": 3, "kinds": ["none"] * 3},
        "rotated": {"samples_per_client": 40},
    }
    try:
        (run,) = read_spec(
            spec_of(SMALL["digits"] | {"partition": partition} | options.get(partition, {}) | more)
        ).runs()
        federation = host_federation(run)
    except (SpecError, DataError):
        pytest.skip("digits cannot be divided so")
    content = federation.pool.x.reshape(len(federation.pool.x), -1)

    def seen(split):
        return {
            content[row].tobytes() for c in range(federation.clients) for row in rows_of(split, c)
        }

    valid = seen(federation.valid)
    assert len(valid) > 50 and not valid & seen(federation.train)


def spec_of(data):
    return {"data": data, "model": "mclr", "train": TRAIN, "method": ["fedavg"], "seeds": [0]}


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "shards", "quantity", "label_swap"])
def test_the_samples_of_validation_are_a_part_of_those_that_would_be_trained_on(partition):
    (run,), (plain,) = (
        runs({"partition": partition}),
        runs({"partition": partition, "validation": 0.0}),
    )
    with_, without = host_federation(run), host_federation(plain)
    assert without.valid is None and run.id != plain.id
    x_with, x_without = np.asarray(with_.pool.x), np.asarray(without.pool.x)
    for client in range(with_.clients):
        train, valid = (rows_of(split, client) for split in (with_.train, with_.valid))
        assert not set(train) & set(valid)
        both = sorted(map(tuple, x_with[train + valid].tolist()))
        assert both == sorted(map(tuple, x_without[rows_of(without.train, client)].tolist()))
        assert np.array_equal(
            x_with[rows_of(with_.test, client)], x_without[rows_of(without.test, client)]
        )


def outputs(run, federation=None):
    (batch,) = make_batches([run], 1)
    parts = assemble_batch(batch, describe_machine())
    parts = parts if federation is None else parts._replace(federation=federation(parts.federation))
    return simulate(parts, [run.seed], [{"lr": 0.2}])[0]


def test_nobody_trains_on_validation_samples_and_no_normalisation_sees_them():
    (run,) = runs({"normalise": "pixel"})
    federation = host_federation(run)
    trained = np.concatenate([rows_of(federation.train, c) for c in range(federation.clients)])
    assert np.allclose(
        np.asarray(federation.pool.mean),
        np.asarray(federation.pool.x)[trained].mean(0),
        atol=1e-5,
    )
    held = np.concatenate([rows_of(federation.valid, c) for c in range(federation.clients)])

    def spoiled(fed):
        x = np.array(fed.pool.x)
        x[held] = 1e3
        return dataclasses.replace(fed, pool=fed.pool._replace(x=x))

    before, after = outputs(run), outputs(run, spoiled)
    assert before.models.tobytes() == after.models.tobytes()
    assert before.history["accuracy"].tobytes() == after.history["accuracy"].tobytes()
    assert before.history["val_loss"][-1] != after.history["val_loss"][-1]


def test_no_choice_sees_test_labels():
    (run,) = runs(
        train={"rounds": 30, "stop": {"patience": 3, "metric": "val_loss"}, "lr": 0.5},
        method="ifca",
    )
    federation = host_federation(run)
    tested = np.concatenate([rows_of(federation.test, c) for c in range(federation.clients)])

    def permuted(fed):
        y = np.array(fed.pool.y)
        y[tested] = (y[tested] + 1) % 4
        return dataclasses.replace(fed, pool=fed.pool._replace(y=y))

    before, after = outputs(run), outputs(run, permuted)
    assert (
        before.models.tobytes() == after.models.tobytes()
        and before.labels.tolist() == after.labels.tolist()
    )
    assert before.history["val_loss"].tobytes() == after.history["val_loss"].tobytes()
    assert before.history["accuracy"][-1] != after.history["accuracy"][-1]


@pytest.mark.parametrize("method", ["ditto"])
def test_a_method_has_validation_numbers(method):
    options = {"name": method} | (
        {"threshold": 1.0, "warmup_rounds": 1} if method == "fl_hc" else {}
    )
    partition = (
        {"partition": "label_swap", "groups": 2}
        if method == "oracle"
        else {"partition": "dirichlet"}
    )
    model = toy.named_model(method, {"name": "mlp", "hidden": [4]})
    result = cfljax.run(
        method=options, data=BLOBS | partition, model=model, train=TRAIN | {"rounds": 2}, seed=0
    )
    history = result.history
    assert np.isfinite(history["val_loss"]).all()
    assert result.summary["accuracy_at_best_val"] in history["accuracy"]


def test_what_cannot_be_is_said_in_one_line():
    with pytest.raises(SpecError, match=r"data.validation = 1.0: must be less than 1"):
        runs({"validation": 1.0})
    with pytest.raises(
        SpecError, match=r'train.stop.metric = "val_loss": needs .* data.validation = 0.1'
    ):
        runs({"validation": 0.0}, train={"stop": {"patience": 3}})
    with pytest.raises(SpecError, match=r"train.stop = 3: must be a table"):
        runs(train={"stop": 3})
    with pytest.raises(SpecError, match=r"train.stop.patience = 0"):
        runs(train={"stop": {"patience": 0}})
    assert (
        runs({"validation": 0.0}, train={"stop": {"patience": 3, "metric": "train_loss"}})[
            0
        ].train.stop.patience
        == 3
    )
    assert runs(train={"stop": "none"})[0].id == runs()[0].id
