"""Each comparison of the differential drill finds a fault that is planted."""

from random import Random

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices import compiled
from cfljax.engine import metrics, program, simulation
from cfljax.launch.sweep import Worker
from cfljax.local import rounds
from drills.common import Tally
from drills.differential import examples, folders, plans, reference, specs

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
    assert folders.problems(steps(), Random(0), Tally()) == []
    assert any(folders.in_parts(SMALL, tmp_path / str(seed), Random(seed)) for seed in range(3))


def test_a_state_that_is_not_restored_to_the_bit_is_found(monkeypatch):
    real = simulation.restore

    def moved(shape, saved):
        return real(shape, {name: a * 1.000001 if "models" in name else a for name, a in saved.items()})

    monkeypatch.setattr(simulation, "restore", moved)
    found = [line for seed in range(3) for line in folders.problems(steps(), Random(seed), Tally())]
    assert any("history/loss differs" in line for line in found), found


def test_a_run_that_depends_on_what_the_folder_has_is_found(monkeypatch):
    real = Worker.commit

    def stale(self, batch, units):
        for record, _ in units:
            record["summary"] = record["summary"] | {"accuracy_max": len(self.store.ids()) * (record["seed"] + 1)}
        real(self, batch, units)

    monkeypatch.setattr(Worker, "commit", stale)
    words = " ".join(folders.problems([SMALL | {"seeds": [1]}, SMALL | {"seeds": [0, 1]}], Random(0), Tally()))
    assert "summary is" in words and "runs: " in words and "table Markdown: " in words


@pytest.fixture
def compiled_anew():
    """What is traced while a fault is planted is not kept."""
    compiled.forget()
    yield
    compiled.forget()


@pytest.mark.long
def test_plans_that_agree_and_one_that_forgets_a_block(monkeypatch, compiled_anew):
    table = plans.with_train(SMALL, plan={"stream": 2, "lanes": 1, "gram": 16, "devices": 1})
    assert plans.problems(table, Random(0), Tally()) == []
    real = rounds._in_blocks

    def forgetful(part, jobs, mixing, block):
        return real(part, jobs, mixing._replace(mix=mixing.mix.at[:, -block:].set(0)), block)

    monkeypatch.setattr(rounds, "_in_blocks", forgetful)
    compiled.forget()
    assert any("models" in line for line in plans.problems(table, Random(0), Tally()))


FAULTS = {
    "a learning rate that decays a round early": (program, "decayed", lambda real: lambda hyper, t: real(hyper, t + 1), "models"),
    "a client that is not counted": (
        metrics,
        "fairness",
        lambda real: lambda right, there: real(right, np.where(np.arange(there.shape[-1]) == 0, 0, there)),
        "accuracy_worst10",
    ),
}


DECAYING = plans.with_train(SMALL, lr_decay=0.5)


def test_the_plain_program_computes_what_the_compiled_one_does():
    assert reference.problems(DECAYING, Random(0), Tally()) == []


def test_rounds_in_which_nobody_takes_part():
    assert reference.problems(plans.with_train(SMALL, dropout=0.8, participation=1), Random(0), Tally()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_the_plain_program_finds(name, monkeypatch, compiled_anew):
    module, what, fault, where = FAULTS[name]
    monkeypatch.setattr(module, what, fault(getattr(module, what)))
    compiled.forget()
    assert any(where in line for line in reference.problems(DECAYING, Random(0), Tally()))


def test_a_result_that_rounding_may_decide_is_no_difference(monkeypatch):
    tables = []

    def outcome(table):
        tables.append(table)
        other = table["train"]["lr"] not in specs.LRS or "plan" not in table["train"] or table["train"]["plan"] != specs.PLAIN_PLAN
        return {"labels": np.array([[0, int(other)]]), "diverged": np.array(False)}

    monkeypatch.setattr(plans, "outcome", outcome)
    assert plans.problems(plans.with_train(SMALL, plan={"lanes": 0}), Random(0), Tally()) == []
    monkeypatch.setattr(plans, "NUDGES", ())
    assert len(plans.problems(plans.with_train(SMALL, plan={"lanes": 0}), Random(0), Tally())) == plans.RUNS


def test_a_failing_example_is_printed_with_a_smaller_one_and_the_seed_that_repeats_it(monkeypatch, capsys):
    def problems(table, draw, tally):
        return ["wrong"] if "momentum" in table["train"] else []

    table = SMALL | {"train": SMALL["train"] | {"momentum": 0.5, "dropout": 0.2}}
    kind = examples.Kind(lambda draw: table, problems, specs.simpler)
    monkeypatch.setattr(examples, "kinds", lambda: {"some": kind})
    tally = Tally()
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


@pytest.mark.parametrize("way", ["holdout", "test_loss"])
def test_the_plain_program_scores_clients_that_never_train_as_the_compiled_one_does(way):
    data = SMALL["data"] | {"test_clients": 4, "test": "global" if way == "holdout" else "own"}
    table = plans.with_train(SMALL, rounds=2, test_clients_choose=way) | {"data": data, "method": [{"name": "ifca", "clusters": 3}]}
    assert reference.problems(table, Random(0), Tally()) == []
