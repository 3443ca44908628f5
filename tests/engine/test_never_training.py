"""Clients that never train, as users meet them: how they choose, who is scored on what, and where
their accuracy stands."""

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.report.tables import write_comparison

DATA = {
    "name": "blobs",
    "samples": 300,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 4,
    "samples_per_client": 25,
}
TABLE = {
    "method": ["fedavg", {"name": "ifca", "clusters": 3}],
    "model": "mclr",
    "train": {"rounds": 2, "lr": 0.3},
}
WAYS = {"holdout": 12, "test_loss": 25}
"""How many of 25 test samples are scored."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("never")
    table = TABLE | {"data": DATA | {"test_clients": 2}}
    return cfljax.sweep(
        table, folder / "r", sets=["train.test_clients_choose=holdout,test_loss"], quiet=True
    )


@pytest.mark.parametrize("way", WAYS)
def test_methods_with_one_model_and_with_several_are_scored_on_the_same_samples(results, way):
    frame = results.to_pandas()
    for result in results:
        if result.config["train"]["test_clients_choose"] != way:
            continue
        right = result.client_accuracy * np.array(
            [30, 30, 30, 30, WAYS[way], WAYS[way]]
        )  # test samples: 60 for the two of a group
        assert np.allclose(right, np.round(right), atol=1e-3)
        row = next(
            r for _, r in frame.iterrows() if r["accuracy_last"] == result.summary["accuracy_last"]
        )
        assert row["accuracy_train_clients_last"] == pytest.approx(right[:4].sum() / 120)
        assert row["accuracy_test_clients_last"] == pytest.approx(right[4:].sum() / (2 * WAYS[way]))
        assert row["accuracy_last"] == pytest.approx(right.sum() / (120 + 2 * WAYS[way]))
        assert result.history["accuracy_test_clients"][-1] == pytest.approx(
            row["accuracy_test_clients_last"]
        )


def test_tables_show_them_apart_and_only_where_they_are(results, tmp_path):
    text = write_comparison(results)
    assert (
        "last, training clients" in text
        and "last, test clients" in text
        and "test clients never train" in text
    )
    without = cfljax.sweep(TABLE | {"data": DATA, "method": "fedavg"}, tmp_path / "r", quiet=True)
    assert (
        "test clients" not in write_comparison(without)
        and "accuracy_test_clients_last" not in without.to_pandas()
    )


def test_how_they_choose_is_part_of_the_id():
    ways = ({}, {"test_clients_choose": "holdout"}, {"test_clients_choose": "test_loss"})
    ids = [
        run.id
        for each in ways
        for run in read_spec(TABLE | {"data": DATA | {"test_clients": 2}, "train": each}).runs()
    ]
    assert ids[:2] == ids[2:4] and len(set(ids)) == 4
