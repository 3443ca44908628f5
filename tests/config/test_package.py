"""Every name of the package's own registries can be written in a spec."""

import pytest

from cfljax.config import read_spec
from cfljax.config.tables import RESERVED_KEYS
from cfljax.config.values import list_fields
from cfljax.data import SOURCES
from cfljax.errors import SpecError
from cfljax.experiment.batching import Size, list_hyper, make_batches
from cfljax.experiment.dry_run import dry_run
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS

SIZE = Size(clients=10, parameters=100, learners=10, pool_bytes=10**6)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_be_planned(name):
    assert not set(RESERVED_KEYS) & set(list_fields(METHODS.entry(name).options))
    runs = read_spec(
        {"data": "digits", "method": name, "train": {"lr": [0.1, 0.2]}, "seeds": "0:2"}
    ).runs()
    assert [run.method for run in runs] == [name] * 4
    made = make_batches(runs, 3)
    assert len({batch.program_key for batch in made}) == 1
    assert name in dry_run(made, SIZE)
    assert all(isinstance(number, float) for number in list_hyper(runs[0]).values())


@pytest.mark.parametrize("name", list(PARTITIONS))
def test_every_partition_can_be_named(name, tmp_path):
    options = list_fields(PARTITIONS.entry(name).options)
    assert not {"name", "partition"} & set(options)
    data = {"name": "digits", "partition": name}
    if name == "file":
        data["file"] = str(tmp_path / "split.json")
        (tmp_path / "split.json").write_text('{"0": [0, 1], "1": [2, 3]}')
    (run,) = read_spec({"data": data, "method": "fedavg"}).runs()
    (again,) = read_spec(run.resolved()).runs()
    assert again.id == run.id


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_can_be_named(name):
    (run,) = read_spec({"data": "digits", "method": "fedavg", "model": name}).runs()
    assert read_spec(run.resolved()).runs()[0].id == run.id


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_source_can_be_named_and_reads_back(name):
    (run,) = read_spec({"data": name, "method": "fedavg"}).runs()
    assert read_spec(run.resolved()).runs()[0].cheap_id == run.cheap_id


def test_cfl_mgd_refuses_a_second_momentum():
    with pytest.raises(SpecError, match="momentum"):
        read_spec({"data": "digits", "method": "cfl_mgd", "train": {"momentum": 0.9}})


def test_a_slip_in_the_name_of_a_data_set_shows_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    with pytest.raises(SpecError, match='did you mean "digits"'):
        read_spec({"data": "digit", "method": "fedavg"})
    (tmp_path / "digit.npz").touch()
    (run,) = read_spec(
        {"data": {"name": "digit", "path": str(tmp_path)}, "method": "fedavg"}
    ).runs()
    assert run.data.name == "digit"
