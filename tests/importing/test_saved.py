"""Folders with a saved data set for each client, as Flower's partitioners give them."""

import json

import numpy as np
import pytest

import cfljax
from cfljax import data
from cfljax.errors import DataError
from tests.importing.helpers import imported, refused, saved


def rows(client, n=10):
    """Samples that say whose they are: the first number is the client."""
    return {
        "x": [[float(client), float(i), 1.0] for i in range(n)],
        "label": [i % 2 for i in range(n)],
    }


def owner_of_each(source):
    """(the owners of the training samples, of the test samples) after their first number."""
    return source.x_train[:, 0].astype(int), source.x_test[:, 0].astype(int)


def test_each_partition_is_a_client_in_the_order_of_the_numbers(home):
    for client in range(11):  # partition_10 comes after partition_9, not after partition_1
        saved(home / "flowers" / f"partition_{client}", rows(client, 5 + client), ["no", "yes"])
    imported(home / "flowers")
    source = data.load("flowers")
    train, test = owner_of_each(source)
    assert np.array_equal(source.user_train, train) and np.array_equal(source.user_test, test)
    assert np.array_equal(np.bincount(train) + np.bincount(test), np.arange(5, 16))
    assert json.loads((home / "home/flowers/cfljax.json").read_text())["class_names"] == [
        "no",
        "yes",
    ]
    result = cfljax.run(
        "fedavg", data={"name": "flowers", "partition": "user"}, model="mclr", rounds=1
    )
    assert result.status == "done" and len(result.labels) == 11


def test_each_partition_may_have_its_own_test_split(home, capsys):
    for client in range(3):
        for split, n in (("train", 6), ("test", 2 + client)):
            saved(home / "split" / f"client_{client}_data" / split, rows(client, n))
        if (
            client
        ):  # what save_to_disk writes; two data sets in folders train and test are read, too
            (home / "split" / f"client_{client}_data" / "dataset_dict.json").write_text(
                '{"splits": ["train", "test"]}'
            )
    saved(home / "split" / "server_val_data", rows(9))
    imported(home / "split")
    assert (
        "left out, because the clients are client_0_data, …: server_val_data"
        in capsys.readouterr().err
    )
    source = data.load("split")
    train, test = owner_of_each(source)
    assert np.array_equal(source.user_train, train) and np.array_equal(source.user_test, test)
    assert np.bincount(train).tolist() == [6, 6, 6] and np.bincount(test).tolist() == [2, 3, 4]


def test_names_without_numbers_are_clients_too_and_a_column_may_say_otherwise(home):
    for client, place in enumerate(("east", "north", "west")):
        saved(
            home / "places" / place, rows(client) | {"ward": [10 * (i % 2) + 2 for i in range(10)]}
        )
    imported(home / "places", "--drop", "ward")
    source = data.load("places")
    assert np.array_equal(source.user_train, owner_of_each(source)[0])
    imported(home / "places", "--user", "ward", "--name", "wards")
    wards = data.load("wards")
    assert np.array_equal(
        wards.user_train, wards.x_train[:, 1].astype(int) % 2
    )  # ward 2 comes before ward 12


def test_one_data_set_with_a_column_of_partitions(home):
    whole = {
        "x": [[float(i % 12), 1.0] for i in range(60)],
        "label": [i // 12 % 2 for i in range(60)],
    }
    saved(home / "whole", whole | {"partition_id": [i % 12 for i in range(60)]})
    imported(home / "whole", "--user", "partition_id")
    source = data.load("whole")
    assert (
        np.array_equal(source.user_train, source.x_train[:, 0].astype(int))
        and source.user_train.max() == 11
    )


def test_texts_of_partitions(home):
    for client in range(3):
        saved(home / "said" / f"partition_{client}", {"text": ["ab" * 9, "ba" * 9]})
    imported(home / "said", "--text", "text", "--length", 4)
    assert set(data.load("said").user_train) == {0, 1, 2}


@pytest.mark.parametrize(("second", "classes", "words"), [
    ({"x": [], "label": []}, (), "odd"), (rows(1), ("yes", "no"), "1 has other columns, types or classes than 0"),
    ({"z": [[1.0]], "label": [0]}, (), "give all clients the same"),
])  # fmt: skip
def test_partitions_that_do_not_fit_together_are_one_line(home, capsys, second, classes, words):
    saved(home / "odd" / "partition_0", rows(0), ("no", "yes") if classes else ())
    saved(home / "odd" / "partition_1", second, classes)
    assert words in refused(capsys, home / "odd")


def test_a_test_split_is_for_all_clients_or_none(home, capsys):
    saved(home / "some" / "partition_0" / "train", rows(0))
    saved(home / "some" / "partition_0" / "test", rows(0))
    saved(home / "some" / "partition_1", rows(1))
    assert "partition_1: has no test split, and other clients have one" in refused(
        capsys, home / "some"
    )
    (home / "none").mkdir()
    assert "has no data set that save_to_disk wrote" in refused(
        capsys, home / "none", "--kind", "datasets"
    )


def test_what_flower_partitions_comes_in(home):
    pytest.importorskip("flwr_datasets")
    from datasets import ClassLabel, Dataset
    from flwr_datasets.partitioner import DirichletPartitioner

    rng = np.random.default_rng(0)
    whole = Dataset.from_dict(
        {"image": rng.integers(256, size=(200, 6, 6), dtype=np.uint8), "label": np.arange(200) % 4}
    )
    whole = whole.cast_column("label", ClassLabel(names=list("abcd")))
    partitioner = DirichletPartitioner(
        num_partitions=4, partition_by="label", alpha=0.5, min_partition_size=5
    )
    partitioner.dataset = whole
    sizes = []
    for client in range(4):
        partition = partitioner.load_partition(client)
        partition.save_to_disk(home / "dealt" / f"partition_{client}")
        sizes.append(len(partition))
    imported(home / "dealt")
    source = data.load("dealt")
    assert (np.bincount(source.user_train) + np.bincount(source.user_test)).tolist() == sizes
    assert (
        source.x_train.shape[1:] == (6, 6, 1)
        and source.x_train.dtype == np.uint8
        and source.classes == 4
    )


def test_a_data_set_of_the_hub_goes_by_its_name(home, capsys, monkeypatch):
    """`load_dataset` takes a folder of this name before it asks the hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(home)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "cache")
    datasets.disable_progress_bars()
    for split, n in (("train", 30), ("test", 10)):
        columns = {
            "a": [float(i) for i in range(n)],
            "kind": [f"k{i % 3}" for i in range(n)],
            "who": [i % 5 for i in range(n)],
        }
        (home / "some" / "birds").mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(columns).to_parquet(home / "some" / "birds" / f"{split}.parquet")
    with pytest.raises(DataError, match="get it with `python -m cfljax.data import hf:some/birds`"):
        data.load("hf:some/birds")
    assert (
        "which column is the label? give --label COLUMN; the columns are a, kind, who"
        in refused(capsys, "hf:some/birds")
    )
    imported("hf:some/birds", "--label", "kind", "--user", "who")
    assert '"hf:some/birds", partition = "user"' in capsys.readouterr().out
    source = data.load("hf:some/birds")
    assert source.classes == 3 and len(set(source.user_train.tolist())) == 5
    assert sorted(source.x_train[:, 0].tolist()) == list(range(30)) and len(source.y_test) == 10
    assert "hf:some/none: cannot be read from Hugging Face's hub" in refused(capsys, "hf:some/none")


@pytest.mark.parametrize("name", ["tiny_imagenet", "cinic10", "office_home"])
def test_sets_of_the_hub_are_prepared_by_name_with_the_domains_as_owners(home, monkeypatch, name):
    datasets = pytest.importorskip("datasets")
    from cfljax.data import prepare

    monkeypatch.chdir(home)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "cache")
    datasets.disable_progress_bars()
    domain = {"domain": ["Art", "Product"] * 6} if name == "office_home" else {}
    images = np.random.default_rng(0).integers(256, size=(12, 64, 64, 3), dtype=np.uint8)
    made = datasets.Dataset.from_dict({"image": list(images), **domain, "label": [0, 1, 2] * 4})
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    made = made.cast(
        datasets.Features(features | ({"domain": datasets.Value("string")} if domain else {}))
    )
    place = home / prepare.HUB_SETS[name][0].removeprefix("hf:")
    place.mkdir(parents=True)
    made.to_parquet(place / "train.parquet")
    if not domain:
        made.to_parquet(place / ("valid.parquet" if name == "tiny_imagenet" else "test.parquet"))
    prepared = [prepare.prepare(name), prepare.prepare(name)]  # the second finds the first
    source = data.load(name)
    assert (
        prepared[0] == prepared[1]
        and source.x_train.shape[1:] == (64, 64, 3)
        and source.classes == 3
    )
    assert (len(source.y_test), source.user_train is None) == ((2, False) if domain else (12, True))
