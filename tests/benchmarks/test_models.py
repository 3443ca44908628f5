"""The benchmarks of today's models, and of a frozen body."""

import sys

import pytest

from benchmarks import frozen, models
from cfljax.config import read_spec


@pytest.mark.parametrize("name", models.MODELS)
def test_a_run_has_clients_of_five_steps_each(name):
    models.register()
    (run,) = read_spec(models.spec(name, 3, 4, "native")).runs()
    assert (run.model.name, run.train.batch, run.train.rounds) == (name, 50, 3)
    assert models.SAMPLES // models.BATCH == 5
    assert name == "transformer" or run.model.options.conv == "native"


def test_an_unknown_model_is_refused():
    with pytest.raises(SystemExit):
        models.main(["--models", "resnet21"])


@pytest.mark.long
def test_a_frozen_body_is_timed_by_turns_against_one_that_steps_compute(monkeypatch, capsys):
    data = {"name": "blobs", "samples": 80, "features": 4, "classes": 3, "partition": "iid", "clients": 2, "normalise": "none"}
    monkeypatch.setattr(frozen, "DATA", data)
    monkeypatch.setattr(frozen, "MODEL", {"name": "mlp", "hidden": [3]})
    monkeypatch.setattr(sys, "argv", ["frozen", "--rounds", "1"])
    frozen.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["train.freeze", "model.frozen", "times faster"]
