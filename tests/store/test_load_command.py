"""The files that the load command writes."""

import pandas as pd
import pytest

from cfljax.commands import process
from cfljax.commands.load import parser, run
from cfljax.results.result import Results
from cfljax.store import Store
from tests.store.helpers import make_arrays, make_record


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
        assert list(written["bytes_up"]) == [10_000_000_001] * 2 and list(written["accuracy_max"]) == [0.5, 0.5]


def test_an_exported_folder_has_the_runs_and_no_models(folder, tmp_path, capsys):
    assert load(folder, "--export", tmp_path / "small") == 0
    assert capsys.readouterr().out == f"2 runs copied to {tmp_path / 'small'}\n"
    assert Results(tmp_path / "small").to_pandas().equals(Results(folder).to_pandas())
    assert load(folder, "--export", folder) == 3
    assert "is the folder itself" in capsys.readouterr().err
