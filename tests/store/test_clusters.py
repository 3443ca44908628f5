"""The clusters and models of a run as a folder for other programs."""

import importlib.util
import json
import runpy

import numpy as np
import pytest

import cfljax
from cfljax.commands import cli
from cfljax.errors import SpecError, StoreError
from tests import blocks
from tests.blocks import DOCS
from tests.store.test_predict import DIGITS, never_training, result  # noqa: F401


def index_of(folder):
    return json.loads((folder / "clusters.json").read_text())


def arrays_of(folder, cluster):
    with np.load(folder / f"cluster_{cluster}.npz") as file:
        return {name: file[name] for name in file.files}


def test_the_folder_has_the_cluster_of_each_client_and_the_model_of_each_cluster(result, tmp_path):  # noqa: F811
    folder = result.export_clusters(tmp_path / "jax")
    about = index_of(folder)
    assert (
        about["clients"] == result.labels.tolist()
        and about["run"] == result.run
        and about["method"] == "ifca"
    )
    used = sorted(set(result.labels.tolist()))
    assert about["clusters"] == {str(k): f"cluster_{k}.npz" for k in used}
    assert sorted(f.name for f in folder.iterdir()) == [
        *(f"cluster_{k}.npz" for k in used),
        "clusters.json",
    ]
    for k in used:
        flat = np.concatenate([array.ravel() for array in arrays_of(folder, k).values()])
        assert np.array_equal(flat, result.models[k])


def test_in_the_layout_of_pytorch_weights_come_before_biases(result, tmp_path):  # noqa: F811
    folder = result.export_clusters(tmp_path / "torch", layout="torch")
    k = result.labels[0]
    arrays = arrays_of(folder, k)
    assert list(arrays) == ["dense_0.weight", "dense_0.bias", "dense_1.weight", "dense_1.bias"]
    assert np.array_equal(arrays["dense_1.weight"], result.params(k)["dense_1"]["kernel"].T)
    with pytest.raises(SpecError, match='layout = "keras"'):
        result.export_clusters(tmp_path / "keras", layout="keras")
    assert not (tmp_path / "keras").exists()


def test_clients_that_never_train_are_in_the_cluster_that_they_chose(never_training, tmp_path):  # noqa: F811
    said = index_of(never_training.export_clusters(tmp_path / "c"))["clients"]
    scored = [
        np.trace(never_training.confusion(c, said[c])) / never_training.confusion(c, said[c]).sum()
        for c in range(6)
    ]
    assert scored == pytest.approx(never_training.client_accuracy.tolist(), abs=1e-6)


def test_a_folder_that_exists_is_left_as_it_is_and_a_failure_leaves_none(
    result,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError, match="there: exists already"):
        result.export_clusters(tmp_path / "there")
    monkeypatch.setattr(
        "cfljax.results.export.json.dumps", lambda *_: 1 / 0
    )  # after the models, before the index
    with pytest.raises(ZeroDivisionError):
        result.export_clusters(tmp_path / "new")
    assert [f.name for f in tmp_path.iterdir()] == ["there"]


def test_soft_methods_say_the_weight_of_each_model(tmp_path):
    soft = cfljax.run("fedem", DIGITS, {"name": "mlp", "hidden": [8]}, rounds=1, lr=0.1, clusters=2)
    about = index_of(soft.export_clusters(tmp_path / "soft"))
    np.testing.assert_allclose(about["weights"], soft.mixture)
    assert np.array_equal(about["clients"], soft.mixture.argmax(axis=1)) and list(
        about["clusters"]
    ) == ["0", "1"]


def test_the_command_writes_it_and_asks_which_run(tmp_path, capsys):
    spec = {
        "method": "fedavg",
        "data.clients": 5,
        "train.rounds": 1,
        "model": "mclr",
        "seeds": "0:2",
    }
    flags = [word for key, value in spec.items() for word in ("--set", f"{key}={value}")]
    folder = str(tmp_path / "r")
    assert (
        cli.main(
            [
                "sweep",
                *flags,
                "--out",
                folder,
                "--keep",
                "models",
                "--no-report",
                "--quiet",
                "--workers",
                "1",
            ]
        )
        == 0
    )
    runs = list(cfljax.load(folder).records)
    out = tmp_path / "out"
    assert cli.main(["load", folder, "--clusters", str(out)]) == 2
    assert f"{folder} has 2 runs; choose one by --run ID" in capsys.readouterr().err
    assert cli.main(["load", folder, "--clusters", str(out), "--run", "none"]) == 3
    assert (
        cli.main(["load", folder, "--clusters", str(out), "--run", runs[1], "--layout", "torch"])
        == 0
    )
    assert index_of(out)["run"] == runs[1] and index_of(out)["clients"] == [0] * 5
    assert capsys.readouterr().out.endswith("clusters.json, and the models of 1 clusters\n")


def message_of_flower(monkeypatch):
    """A message of a server to train. Flower 1.42 makes one in a running task only, earlier
    versions anywhere."""
    from flwr.app import ArrayRecord, Message, RecordDict

    if importlib.util.find_spec("flwr.supercore.task_identity"):
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(TaskIdentity, name, 1)
    return Message(
        RecordDict({"arrays": ArrayRecord([np.zeros(1)])}), dst_node_id=1, message_type="train"
    )


def test_the_client_app_of_the_page_begins_with_the_model_of_its_cluster(
    result,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    pytest.importorskip("flwr")
    from flwr.app import Context, RecordDict

    monkeypatch.chdir(tmp_path)
    result.export_clusters("for_flower")
    page = {block.title: block.text for block in blocks.blocks(DOCS / "tools.md")}
    (tmp_path / "client_app.py").write_text(page["client_app.py"])
    app = runpy.run_path("client_app.py")["app"]
    for client, cluster in enumerate(result.labels):
        place = {"partition-id": client}
        context = Context(run_id=1, node_id=1, node_config=place, state=RecordDict(), run_config={})
        reply = app(message_of_flower(monkeypatch), context).content
        found = reply["arrays"].to_numpy_ndarrays()
        assert np.array_equal(np.concatenate([a.ravel() for a in found]), result.models[cluster])
        assert reply["metrics"]["cluster"] == cluster
