"""The list of what is to be run: its order, its times, and what becomes of a job."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest

from cfljax.config import read_spec
from cfljax.store import Store
from tests.report import synthetic

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SPEC = """
name = "a small sweep"
seeds = [0, 1]
data = { name = "digits", partition = "iid", clients = 4 }
model = { name = "mclr" }
train = { rounds = 30 }
[[method]]
name = "fedavg"
[[method]]
name = "ifca"
clusters = 2
"""
TODO = """
chip = { name = "H200", cnn = 100 }
[[job]]
name = "long"
spec = "spec.toml"
value = 2
hours = 40
cnn = true
[[job]]
name = "known"
spec = "spec.toml"
set = ['method=["fedavg"]', "train.rounds=60"]
value = 1
[[job]]
name = "unknown"
spec = "spec.toml"
value = 9
"""


@pytest.fixture(scope="module")
def todo():
    spec = importlib.util.spec_from_file_location("todo", EXPERIMENTS / "todo.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["todo"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path, todo, monkeypatch):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "todo.toml").write_text(TODO)
    store = Store(tmp_path / "records" / "a")
    for number, run in enumerate(read_spec(tmp_path / "spec.toml", ['method=["fedavg"]']).runs()):
        synthetic.add(store, f"run{number}", number, method="fedavg")
        made = {"config": run.resolved(), "timings": {"train": 30.0 * (1 + number)}}
        store.write(
            f"run{number}",
            store.records()[f"run{number}"] | made,
            store.read(f"run{number}").arrays,
        )
    store.write_plan({"name": "a small sweep", "units": store.ids()})
    monkeypatch.setattr(todo, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(todo, "PLACE", tmp_path / "todo")
    return tmp_path


def test_jobs_stand_by_claims_per_hour_and_take_what_their_runs_took_in_the_records(place, todo):
    every, _ = todo.jobs(place / "todo.toml", place / "records")
    assert [job.name for job in every] == ["known", "long", "unknown"]
    assert every[0].hours == pytest.approx(2 * 60 * 90 / 60 / 3600)  # two seeds of twice the rounds
    assert math.isnan(every[2].hours)  # nobody has run IFCA


def test_the_list_says_how_long_a_cnn_takes_on_a_chip_and_what_is_done(place, todo):
    Store(place / "records" / "long")
    text = todo.listed(*todo.jobs(place / "todo.toml", place / "records"))
    assert "| long | 2 | 40 h | 0.05 | 24 min | done |" in text
    assert "| known | 1 | 3 min | 20 | – |  |" in text
    assert [line.split(" ")[1] for line in text.splitlines()[2:]] == [
        "known",
        "unknown",
        "long",
    ]  # what is done stands last


def test_an_accelerator_begins_with_cnns_and_leaves_out_what_takes_nobody_knows_how_long(
    place, todo
):
    every, chip = todo.jobs(place / "todo.toml", place / "records")
    assert [job.name for job in todo.order_for_card(every, chip)] == ["long", "known"]
    assert every[1].minutes_on(chip) == pytest.approx(24)
    assert every[0].minutes_on(chip) == pytest.approx(60 * every[0].hours)
    out, record = place / "out", place / "records" / "long"
    assert todo.command(every[1], out)[-1] == str(out)
    assert todo.export(out, record)[-2:] == ["--export", str(record)]


def test_every_job_of_the_project_is_a_sweep_that_can_be_run(todo):
    every, chip = todo.jobs()
    assert chip["cnn"] > 1 and len({job.name for job in every}) == len(every)
    assert all(job.runs > 0 and job.value > 0 for job in every)
    assert sum(math.isnan(job.hours) for job in every) <= 2
