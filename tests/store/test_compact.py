"""A small copy of a results folder says the same."""

import shutil

import numpy as np
import pytest

from cfljax.errors import StoreError
from cfljax.results.result import Results
from cfljax.store import Store, verify
from cfljax.store.compact import MAX_DIAGNOSTIC, compact
from tests.report import synthetic


def test_a_copy_has_the_summary_the_curves_and_the_last_labels_alone(tmp_path):
    own = {"large": np.zeros(MAX_DIAGNOSTIC + 1), "small": np.arange(6.0).reshape(2, 3)}
    store = synthetic.sweep(tmp_path / "a", own=own)
    store.write_spec("name = 'x'\n")
    assert compact(tmp_path / "a", tmp_path / "b") == 9
    before, after = Results(tmp_path / "a"), Results(tmp_path / "b")
    assert after.to_pandas().equals(before.to_pandas()) and after.history().equals(before.history())
    for one, other in zip(before, after, strict=True):
        assert (one.labels == other.labels).all() and other.arrays["labels"].ndim == 1
        assert set(other.diag) == {f"{one.method}/small"} and other.diag[f"{one.method}/small"].shape == (2, 3)
    assert verify(tmp_path / "b") == {} and after.store.read_spec() == "name = 'x'\n"
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["plan.json", "spec.toml", "units"]


def test_models_stay_behind_and_a_folder_is_not_copied_onto_itself(tmp_path):
    store = Store(tmp_path / "a")
    arrays = synthetic.arrays_of(0, 0.8) | {"models": np.zeros((2, 5), np.float32)}
    store.write("u", synthetic.record_of("u", 0, arrays), arrays)
    compact(tmp_path / "a", tmp_path / "b")
    assert "models" not in Store(tmp_path / "b", read_only=True).read("u").arrays
    with pytest.raises(StoreError, match="is the folder itself"):
        compact(tmp_path / "a", tmp_path / "a")


def test_the_folder_that_is_copied_stays_as_it_was_and_the_largest_that_is_kept_is_kept(tmp_path):
    store = synthetic.sweep(tmp_path / "a", own={"edge": np.zeros(MAX_DIAGNOSTIC)})
    for empty in (store.checkpoints, store.locks):
        shutil.rmtree(empty)
    before = sorted(tmp_path.joinpath("a").rglob("*"))
    compact(tmp_path / "a", tmp_path / "b")
    assert sorted(tmp_path.joinpath("a").rglob("*")) == before
    assert all(any(name.endswith("/edge") for name in result.diag) for result in Results(tmp_path / "b"))
