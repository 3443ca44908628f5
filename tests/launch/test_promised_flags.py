"""Flags of a sweep that no other test starts it with."""

import os
import subprocess
import sys

import pytest

import cfljax
from cfljax.store import Store
from tests.launch.processes import in_turn

SPEC = """
name = "small"
data = { name = "blobs", samples = 200, partition = "iid", clients = 4 }
model = "mclr"
train = { rounds = 2, lr = 0.1 }
method = ["fedavg"]
seeds = [0]
"""
MINE = """
import os

import cfljax
from cfljax.methods import METHODS
from cfljax.methods.fedavg import FedAvg


@cfljax.register_method("mine", FedAvg)
def make(config, model, solver):
    if "BREAK" in os.environ:
        raise ValueError("not today")
    return METHODS.entry("fedavg").make(config, model, solver)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def sweep(place, *flags, **more):
    command = [
        sys.executable,
        "-m",
        "cfljax.sweep",
        "spec.toml",
        "--out",
        "r",
        "--no-report",
        "--quiet",
        "--workers",
        "1",
        *flags,
    ]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, env=os.environ | more)


def test_no_cache_keeps_no_compiled_program(place, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")  # of all tests
    for name, flags in {"with": (), "without": ("--no-cache",)}.items():
        done = sweep(
            place, *flags, "--set", f"train.rounds={len(name)}", CFLJAX_CACHE=str(place / name)
        )
        assert done.returncode == 0, done.stderr
    programs = {
        name: [p for p in (place / name).rglob("*-cache") if p.is_file()]
        for name in ("with", "without")
    }
    assert programs["with"] and not programs["without"]


def test_a_run_that_failed_is_code_1_and_run_again_when_it_is_asked_for(place):
    (place / "mine.py").write_text(MINE)
    flags = ("--plugin", "mine.py", "--set", "method=mine")
    command = [
        "sweep",
        "spec.toml",
        "--out",
        "r",
        "--no-report",
        "--quiet",
        "--workers",
        "1",
        *flags,
    ]
    (code, _, err), (again, _, _) = in_turn(command, command, each=[{"BREAK": "1"}, {}], cwd=place)
    assert code == 1 and "not today" in err
    assert (
        again == 1
        and Store(place / "r", read_only=True).records().popitem()[1]["status"] == "failed"
    )
    retried = sweep(place, *flags, "--retry-failed")
    assert retried.returncode == 0, retried.stderr
    assert list(cfljax.load(place / "r").to_pandas()["status"]) == ["done"]


@pytest.mark.rare
def test_what_a_ray_task_takes_is_said_by_flags(place):
    pytest.importorskip("ray")
    done = sweep(place, "--launcher", "ray", "--cpus-per-task", "2", "--gpus-per-task", "0")
    assert done.returncode == 0, done.stderr
    (unit,) = Store(place / "r", read_only=True).records().values()
    assert unit["status"] == "done" and unit["plan"].endswith(", 2 threads")
