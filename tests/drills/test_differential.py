"""Each comparison of the differential drill finds a fault that is planted."""

from random import Random

import pytest

from cfljax import simulate as simulation
from cfljax.config import read_spec
from cfljax.launch.sweep import Worker
from tests.drills.differential import examples, folders, specs

SMALL = {
    "data": {"name": "blobs", "samples": 200, "partition": "label_permutation", "groups": 2, "clients": 6},
    "model": {"name": "mclr"},
    "train": {"rounds": 4, "participation": 4, "lr": 0.1},
    "method": [{"name": "fedavg"}],
    "seeds": [0],
}


def steps():
    return [SMALL, SMALL | {"seeds": [0, 1]}]


def test_folders_that_are_alike_and_starts_that_were_interrupted(tmp_path):
    assert folders.problems(steps(), Random(0)) == []
    assert any(folders.in_parts(SMALL, tmp_path / str(seed), Random(seed)) for seed in range(3))


def test_a_state_that_is_not_restored_to_the_bit_is_found(monkeypatch):
    real = simulation.restore

    def moved(shape, saved):
        return real(shape, {name: a * 1.000001 if "models" in name else a for name, a in saved.items()})

    monkeypatch.setattr(simulation, "restore", moved)
    found = [line for seed in range(3) for line in folders.problems(steps(), Random(seed))]
    assert any("history/loss differs" in line for line in found), found


def test_a_run_that_depends_on_what_the_folder_has_is_found(monkeypatch):
    real = Worker.keep

    def stale(self, name, record, arrays):
        record["summary"] = record["summary"] | {"accuracy_max": len(self.store.ids()) * (record["seed"] + 1)}
        real(self, name, record, arrays)

    monkeypatch.setattr(Worker, "keep", stale)
    words = " ".join(folders.problems([SMALL | {"seeds": [1]}, SMALL | {"seeds": [0, 1]}], Random(0)))
    assert "summary is" in words and "runs: " in words and "table Markdown: " in words


def test_a_failing_example_is_told_with_a_smaller_one_and_the_seed_that_repeats_it(monkeypatch, capsys):
    def problems(table, draw):
        return ["wrong"] if "momentum" in table["train"] else []

    table = SMALL | {"train": SMALL["train"] | {"momentum": 0.5, "dropout": 0.2}}
    kind = examples.Kind(lambda draw: table, problems, specs.simpler)
    monkeypatch.setattr(examples, "kinds", lambda: {"some": kind})
    tally = examples.Tally()
    examples.one(tally, 7, "some")
    (failure,) = tally.failures
    assert failure.startswith("--seed 7 --count 1: some: wrong of ") and "dropout" not in failure and "momentum" in failure
    assert "seed 7: some" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*specs.WITH_REFERENCE, *specs.OTHERS])
def test_specs_are_drawn_again_from_their_seed_and_most_are_valid(name):
    drawn = [specs.run_table(Random(seed), name) for seed in range(20)]
    assert drawn == [specs.run_table(Random(seed), name) for seed in range(20)]
    assert examples._fitting(lambda draw: specs.run_table(draw, name))(Random(3))


def test_the_last_of_the_steps_is_a_sweep():
    sizes = [len(read_spec(examples._fitting(specs.sweep_steps)(Random(seed))[-1]).runs()) for seed in range(20)]
    assert min(sizes) >= 1 and max(sizes) >= 6
