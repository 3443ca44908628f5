"""A dry run needs the number of parameters of a model. It is kept until something that it depends
on changes."""

import json

import pytest

from cfljax.config import read_spec
from cfljax.experiment import batching, model_size
from cfljax.experiment.assemble import host_federation, model_of


@pytest.fixture
def file(monkeypatch, tmp_path):
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path))
    return tmp_path / "model-sizes.json"


def the_run(hidden):
    return read_spec(
        {
            "data": {"name": "blobs"},
            "model": {"name": "mlp", "hidden": hidden},
            "method": [{"name": "fedavg"}],
        }
    ).runs()[0]


def test_the_number_of_parameters_is_the_models_whether_it_is_kept_or_not(file, monkeypatch):
    sizes = []
    for hidden in ([3], [5], [3]):
        run = the_run(hidden)
        federation = host_federation(run)
        sizes.append(model_size.model_size(run, federation))
        assert sizes[-1] == model_of(run, federation).size
    assert sizes[0] == sizes[2] != sizes[1] and sorted(
        json.loads(file.read_text()).values()
    ) == sorted(sizes[:2])
    monkeypatch.setattr(model_size, "model_of", lambda run, federation: pytest.fail("it is kept"))
    assert model_size.model_size(the_run([5]), host_federation(the_run([5]))) == sizes[1]
    monkeypatch.setattr(model_size, "software_hash", lambda: "another version")
    with pytest.raises(pytest.fail.Exception, match="it is kept"):
        model_size.model_size(the_run([5]), host_federation(the_run([5])))


@pytest.mark.parametrize("written", ["{", "[1]", '{"a": 0}', '{"a": "1"}', '{"a": true}'])
def test_a_file_that_is_damaged_is_made_again(file, written):
    file.write_text(written)
    run = the_run([3])
    assert (
        model_size.model_size(run, host_federation(run)) == model_of(run, host_federation(run)).size
    )
    assert len(json.loads(file.read_text())) == 1


def test_what_is_written_twice_of_the_digits_is_scikit_learns():
    from sklearn.datasets import load_digits

    from cfljax.data.generated import _read_digits

    theirs, ours = load_digits(), _read_digits()
    assert ours[:, :-1].tobytes() == theirs.data.tobytes() and (ours[:, -1] == theirs.target).all()


def test_the_state_of_a_servers_optimiser_is_counted():
    size, sums = batching.Size(10, 1000, 10), []
    for server in (
        "none",
        {"name": "sgd", "lr": 1},
        {"name": "adam", "lr": [0.1, 0.2]},
        {"name": "sgd", "lr": 1, "momentum": 0.9},
    ):
        method = {"name": "ifca", "clusters": 3}
        made = batching.make_batches(
            read_spec({"data": "blobs", "train": {"server": server}, "method": [method]}).runs(), 9
        )
        sums.append(batching.estimate_memory(made[0], size) // made[0].width)
    assert [each - sums[0] for each in sums] == [0, 0, 4 * 2 * 3 * 1000, 4 * 3 * 1000]
