"""A published number of ours is run again."""

from pathlib import Path

import numpy as np
import pytest

import cfljax
from cfljax.store import Store
from experiments import check

SPEC = {
    "name": "Digits", "seeds": [0, 1], "data": {"name": "digits", "partition": "rotated", "clients": 8}, "model": {"name": "mclr"},
    "train": {"rounds": 4, "lr": 0.1, "eval_every": 2},
    "method": [{"name": "ifca", "clusters": 2}, {"name": "fedprox", "mu": [0.1, 1.0]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    place = tmp_path_factory.mktemp("records")
    cfljax.sweep(SPEC, out=place / "digits", quiet=True)
    return place


def test_a_number_of_the_same_program_is_the_same_to_the_last_bit(records, capsys):
    assert check.main(["Digits, fedprox, mu 1.0", "--rounds", "1", "--seed", "1"], records) == 0
    assert (
        "seed 1" in (said := capsys.readouterr().out)
        and "over rounds 0 to 2" in said
        and "difference" not in said
    )


def test_a_name_means_the_first_run_that_has_all_that_it_says(records):
    assert set(check.named(records)) == {"Digits, ifca", "Digits, fedprox"}
    assert [run.seed for run in check.chosen("Digits, fedprox", records)] == [0, 0, 1, 1]
    assert [
        run.record["config"]["method"]["mu"]
        for run in check.chosen("Digits, fedprox, mu 1.0", records)
    ] == [1.0, 1.0]


def test_what_differs_is_told_with_its_round(records):
    run = check.chosen("Digits, ifca", records)[0]
    old, new = (check.Result(*run.store.read(run.id)) for _ in range(2))
    accuracy = np.array(new.history["accuracy"])
    accuracy[-1] += 0.25
    new.arrays["history/accuracy"] = accuracy
    assert "largest difference is 0.25, of accuracy in round 4" in check.compared(old, new)


@pytest.mark.parametrize(("words", "said"), [
    (["Digits, fedprx"], "the nearest: Digits, fedprox"), (["Digits, fedprox, mu 7"], "what tells them apart: mu 0.1, mu 1.0"),
    (["Digits, ifca", "--seed", "7"], "--seed 7: has 0, 1"),
])  # fmt: skip
def test_a_wrong_name_is_answered_in_one_line(records, capsys, words, said):
    assert check.main(words, records) == 2
    assert said in (line := capsys.readouterr().err) and line.count("\n") == 1


FOLDERS = sorted(Path(__file__).parents[2].joinpath("experiments", "records").iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_committed_records_are_what_was_written(folder):
    store = Store(folder, read_only=True)
    assert store.read_plan() is not None or store.read_spec() is None
    assert {name: store.check(name) for name in store.ids()} == dict.fromkeys(store.ids())
