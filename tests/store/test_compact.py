"""A small copy of a results folder says the same."""

import shutil

import numpy as np
import pandas as pd
import pytest

from cfljax.commands import process
from cfljax.commands.load import parser, run
from cfljax.errors import StoreError
from cfljax.results.result import Results
from cfljax.store import Store, verify
from cfljax.store.compact import MAX_DIAGNOSTIC, compact
from tests.report import synthetic
from tests.store.helpers import make_arrays, make_record


def test_a_copy_has_the_summary_the_curves_and_the_last_labels_alone(tmp_path):
    own = {"large": np.zeros(MAX_DIAGNOSTIC + 1), "small": np.arange(6.0).reshape(2, 3)}
    store = synthetic.sweep(tmp_path / "a", own=own)
    store.write_spec("name = 'x'\n")
    assert compact(tmp_path / "a", tmp_path / "b") == 9
    before, after = Results(tmp_path / "a"), Results(tmp_path / "b")
    assert after.to_pandas().equals(before.to_pandas()) and after.history().equals(before.history())
    for one, other in zip(before, after, strict=True):
        assert (one.labels == other.labels).all() and other.arrays["labels"].ndim == 1
        assert set(other.diag) == {f"{one.method}/small"} and other.diag[
            f"{one.method}/small"
        ].shape == (2, 3)
    assert verify(tmp_path / "b") == {} and after.store.read_spec() == "name = 'x'\n"
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["plan.json", "spec.toml", "units"]


def test_models_stay_behind_and_a_folder_is_not_copied_onto_itself(tmp_path):
    store = Store(tmp_path / "a")
    models = np.zeros((2, 5), np.float32)
    arrays = synthetic.arrays_of(0, 0.8) | {"models": models, "state/carry/0": models}
    store.write("u", synthetic.record_of("u", 0, arrays) | {"state": {"done": 3}}, arrays)
    compact(tmp_path / "a", tmp_path / "b")
    record, kept = Store(tmp_path / "b", read_only=True).read("u")
    assert not {"models", "state/carry/0"} & kept.keys() and "state" not in record
    with pytest.raises(StoreError, match="is the folder itself"):
        compact(tmp_path / "a", tmp_path / "a")


def test_the_folder_that_is_copied_stays_as_it_was_and_the_largest_that_is_kept_is_kept(tmp_path):
    store = synthetic.sweep(tmp_path / "a", own={"edge": np.zeros(MAX_DIAGNOSTIC)})
    for empty in (store.checkpoints, store.locks):
        shutil.rmtree(empty)
    before = sorted(tmp_path.joinpath("a").rglob("*"))
    compact(tmp_path / "a", tmp_path / "b")
    assert sorted(tmp_path.joinpath("a").rglob("*")) == before
    assert all(
        any(name.endswith("/edge") for name in result.diag) for result in Results(tmp_path / "b")
    )


def test_a_plug_in_is_named_by_its_path_in_its_repository(tmp_path, monkeypatch):
    clone = tmp_path / "home" / "clone"
    (clone / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    named = {
        str(clone / "experiments" / "recipes.py"): "experiments/recipes.py",
        str(tmp_path / "mine.py"): "mine.py",  # in no repository, but in the current folder
        "/elsewhere/theirs.py": "/elsewhere/theirs.py",
        "experiments/recipes.py": "experiments/recipes.py",
    }
    store = Store(tmp_path / "a")
    record = make_record()
    store.write(
        "u", record | {"config": record["config"] | {"plugins": list(named)}}, make_arrays()
    )
    process.main(run, parser(), [str(tmp_path / "a"), "--export", str(tmp_path / "b")])
    (copy,) = Results(tmp_path / "b")
    assert copy.config["plugins"] == list(named.values()) and verify(tmp_path / "b") == {}
    assert {k: v for k, v in copy.config.items() if k != "plugins"} == record["config"]
    (original,) = Results(tmp_path / "a")
    assert original.config["plugins"] == list(named)


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path / "out")
    summary = {"accuracy_max": 0.5, "rounds": 2, "bytes_up": 10_000_000_001}
    for seed, name in enumerate("ab"):
        store.write(name, make_record(seed=seed, summary=summary), make_arrays(0.5))
    return store.folder


def load(folder, *flags):
    return process.main(run, parser(), [str(folder), *map(str, flags)])


def test_a_row_per_run_as_csv_and_as_parquet(folder, tmp_path):
    assert load(folder, "--csv", tmp_path / "runs.csv", "--parquet", tmp_path / "runs.parquet") == 0
    frame = Results(folder).to_pandas()
    for written in (pd.read_csv(tmp_path / "runs.csv"), pd.read_parquet(tmp_path / "runs.parquet")):
        assert list(written.columns) == list(frame.columns) and list(written["run"]) == ["a", "b"]
        assert list(written["bytes_up"]) == [10_000_000_001] * 2 and list(
            written["accuracy_max"]
        ) == [0.5, 0.5]


def test_an_exported_folder_has_the_runs_and_no_models(folder, tmp_path, capsys):
    assert load(folder, "--export", tmp_path / "small") == 0
    assert capsys.readouterr().out == f"2 runs copied to {tmp_path / 'small'}\n"
    assert Results(tmp_path / "small").to_pandas().equals(Results(folder).to_pandas())
    assert load(folder, "--export", folder) == 3
    assert "is the folder itself" in capsys.readouterr().err
