"""A published number of ours is run again."""

import numpy as np
import pytest

import cfljax
from experiments import check

SPEC = {
    "name": "Digits",
    "seeds": [0, 1],
    "data": {"name": "digits", "partition": "rotated", "clients": 8},
    "model": {"name": "mclr"},
    "train": {"rounds": 4, "lr": 0.1},
    "method": [{"name": "ifca", "clusters": 2}, {"name": "fedprox", "mu": [0.1, 1.0]}],
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    place = tmp_path_factory.mktemp("records")
    cfljax.sweep(SPEC, out=place / "digits", quiet=True)
    return place


def test_a_number_of_the_same_program_is_the_same_to_the_last_bit(records, capsys):
    assert check.main(["Digits, fedprox, mu 1.0", "--rounds", "2", "--seed", "1"], records) == 0
    assert "seed 1" in (said := capsys.readouterr().out) and "over rounds 0 to 2" in said and "difference" not in said


def test_without_its_setting_a_name_means_the_first_run(records):
    runs = check.named(records)
    assert {"Digits, ifca", "Digits, fedprox", "Digits, fedprox, mu 0.1", "Digits, fedprox, mu 1.0"} == set(runs)
    assert [run.seed for run in runs["Digits, fedprox"]] == [0, 0, 1, 1]


def test_what_differs_is_told_with_its_round(records):
    run = check.named(records)["Digits, ifca"][0]
    old, new = (check.Result(*run.store.read(run.id)) for _ in range(2))
    accuracy = np.array(new.history["accuracy"])
    accuracy[3] += 0.25
    new.arrays["history/accuracy"] = accuracy
    assert "largest difference is 0.25, of accuracy in round 3" in check.compared(old, new)


def test_a_wrong_name_lists_the_nearest_names(records, capsys):
    assert check.main(["Digits, fedprx"], records) == 2
    assert "Digits, fedprox" in capsys.readouterr().err
    assert check.main(["Digits, ifca", "--seed", "7"], records) == 2
    assert "has 0, 1" in capsys.readouterr().err
