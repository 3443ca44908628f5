"""The table `train.server` and the average "nova": what they mean to ids and programs, and what is
refused."""

import pytest

from cfljax.config import Train, read_spec
from cfljax.errors import SpecError
from cfljax.experiment import batching
from cfljax.experiment.privacy import hides_draw
from cfljax.registry.options import list_traced

ADAM = {"name": "adam", "lr": 0.1, "b1": 0.8}


def runs(method="fedavg", data="digits", **train):
    return read_spec({"data": data, "method": [method], "train": train}).runs()


def test_no_table_is_no_part_of_the_id():
    (plain,), (same,), (other,) = runs(), runs(server="none"), runs(server=ADAM)
    assert plain.id == same.id != other.id and "server" not in plain.resolved()["train"]


def test_a_table_reads_back_as_it_was_written():
    (run,) = runs(server=ADAM)
    assert run.resolved()["train"]["server"] == ADAM
    (again,) = read_spec(run.resolved()).runs()
    assert again == run and again.id == run.id
    tables = [ADAM, ADAM | {"b1": 0.9}, ADAM | {"lr": 0.2}, ADAM | {"name": "adamw"}]
    assert len({run.id for run in runs(server=tables)}) == 4


def test_rates_share_a_program_and_arguments_do_not():
    made = runs(server=["none", ADAM | {"lr": [0.1, 0.2]}, ADAM | {"b1": [0.7, 0.9]}])
    assert len(made) == 5 and len({batching.static_key(run) for run in made}) == 4
    assert (
        list_traced(made[2].train)["server.lr"] == batching.list_hyper(made[2])["server.lr"] == 0.2
    )
    assert made[1].varies["train.server"] == ADAM
    assert Train(server=ADAM) == Train(server=dict(reversed(ADAM.items())))


@pytest.mark.parametrize("name", ["local", "stocfl", "feddrift", "fedbcd", "fedamp", "pfedgraph"])
def test_methods_without_lasting_clusters_refuse_a_server(name):
    with pytest.raises(SpecError, match=f"train.server with method.{name}: ") as caught:
        runs(name, server=ADAM)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "train", "told"),
    [
        (
            {"name": "fedavg", "average": "nova"},
            {"optimizer": "adam"},
            'train.optimizer = "adam" with method.fedavg: average = "nova"',
        ),
        (
            {"name": "fedavg", "average": "nova"},
            {"robust": "median"},
            'train.robust .* average = "nova"',
        ),
        (
            {"name": "ifca", "average": "nova", "aggregate": "gradient"},
            {},
            'take average = "samples"',
        ),
        (
            "fedavg",
            {"server": {"name": "sgd", "lr": 0.1, "momentum": "x"}},
            "train.server = .*optax.sgd refuses it",
        ),
        (
            "fedavg",
            {"server": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "accumulator_dtype": "x"}},
            "optax.sgd refuses it",
        ),
        (
            "fedavg",
            {"server": {"name": "fedadam", "lr": 0.1, "eps": 1.0}},
            "train.server.eps: fedadam takes no such argument",
        ),
        ("fedavg", {"optimizer": "fedadam"}, 'train.optimizer = "fedadam": optax has no such'),
        (
            "fedavg",
            {"optimizer": {"name": "adam", "mu_dtype": "x"}},
            "train.optimizer = .*optax.adam refuses it",
        ),
        (
            {"name": "ifca", "average": "nova"},
            {"parts": {"body": "all"}},
            'train.parts.body = "all": .*average = "samples"',
        ),
        ({"name": "apfl", "average": "nova"}, {}, 'method.apfl.average = "nova": unknown'),
        ({"name": "fedrep", "average": "nova"}, {}, 'method.fedrep.average = "nova": unknown'),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(method, train, told):
    with pytest.raises(SpecError, match=told) as caught:
        runs(method, **train)
    assert "\n" not in str(caught.value)


def test_weights_that_depend_on_steps_tell_who_was_drawn():
    averages = (
        {"name": "fedavg", "average": average} for average in ("samples", "uniform", "nova")
    )
    assert [hides_draw(runs(method)[0], True) for method in averages] == [True, True, False]
