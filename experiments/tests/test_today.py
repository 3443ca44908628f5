"""The specs on data of today can be read in both sizes, and the small one makes its own data, with
the groups that it is about."""

from pathlib import Path

import numpy as np
import pytest

from cfljax.config import read_spec

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GROUPS = {"corruptions": 5, "cifar100_pachinko": 5, "domains": 4, "texts": 2, "speech": 2}


@pytest.mark.parametrize("name", GROUPS)
def test_a_spec_has_a_small_size_that_makes_its_data(name, monkeypatch, tmp_path):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    path = EXPERIMENTS / f"{name}.toml"
    full, small = read_spec(path).runs(), read_spec(path, ["size=small"]).runs()
    assert {run.method for run in full} == {run.method for run in small}
    assert full[0].train.rounds > small[0].train.rounds
    source = small[0].data.load()
    made = small[0].data.divide(source)
    assert len(np.unique(made.group)) == GROUPS[name] and all(
        len(rows) for rows in [*made.train, *made.test]
    )
    assert len(source.y_train) < 10_000
