"""The Ray launcher, on a real Ray of this machine."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cfljax.config import read_spec
from cfljax.devices.machine import Speed
from cfljax.errors import SpecError
from cfljax.launch import ray_task
from cfljax.launch.ray_cluster import RayOptions, _Writer, carry_out_by_ray
from cfljax.launch.sweep import SweepOptions
from cfljax.store import Store

SPEC = """
name = "by ray"
data = { name = "blobs", samples = 2000, partition = "quantity", clients = 40 }
model = { name = "mclr" }
train = { rounds = 200, lr = 0.1, batch = 10 }
seeds = "0:2"
[[method]]
name = "ifca"
clusters = 3
[[method]]
name = "fedgroup"
clusters = 3
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def units(folder):
    store = Store(folder, read_only=True)
    return {name: store.read(name) for name in store.ids()}


def test_without_ray_it_says_what_to_install(spec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r'pip install "\.\[ray\]" in the checkout'):
        carry_out_by_ray(read_spec(spec), Store(tmp_path / "r"), SweepOptions(quiet=True), 2, [])


def test_a_task_goes_by_what_the_sweep_has_settled(tmp_path):
    settled = Speed(1.0, 2.0, 3.0, 4.0)
    order = {
        "folder": str(tmp_path),
        "plugins": [],
        "devices": 1,
        "threads": 64,
        "cache": False,
        "speed": list(settled),
    }
    where = Path.cwd()
    try:
        machine = ray_task._prepare(order | {"mesh": [1, 1]})
        assert machine.speed == settled and machine.mesh == (1, 1)
        with pytest.raises(SpecError, match="--mesh runs=1,clients=64: needs 64 devices"):
            ray_task._prepare(order | {"mesh": [1, 64]})
        assert ray_task._prepare(order | {"mesh": None}).mesh is None
    finally:
        os.chdir(where)


@pytest.mark.rare
def test_a_killed_workers_batch_runs_again_and_units_equal_the_local_launchers(
    spec, tmp_path, monkeypatch, capfd
):
    pytest.importorskip("ray")
    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0")
    killed, pids, log, hear_at = [], {}, Store.log, _Writer.show_progress

    def logged(self, event):
        if event["event"] == "begin":
            pids[event["batch"]] = event["pid"]
        log(self, event)

    def at(self, task, done, accuracy):
        hear_at(self, task, done, accuracy)
        if not killed and 0 < done < 200:
            killed.append(task.batch.id)
            os.kill(pids[task.batch.id], signal.SIGKILL)

    monkeypatch.setattr(Store, "log", logged)
    monkeypatch.setattr(_Writer, "show_progress", at)
    outcome = carry_out_by_ray(
        read_spec(spec),
        Store(tmp_path / "ray"),
        SweepOptions(quiet=True, launcher=RayOptions()),
        2,
        [],
    )
    assert outcome == (4, 0, 0, 4) and len(killed) == 1
    assert "its worker died; another one runs it again" in capfd.readouterr().err
    local = [
        sys.executable,
        "-m",
        "cfljax.sweep",
        spec,
        "--out",
        tmp_path / "local",
        "--no-report",
        "--quiet",
    ]
    subprocess.run(
        [*map(str, local), "--workers", str(len(os.sched_getaffinity(0)))], check=True
    )  # a thread each, as the tasks
    here, there = units(tmp_path / "ray"), units(tmp_path / "local")
    assert here.keys() == there.keys()
    for name, unit in here.items():
        assert {k: v.tobytes() for k, v in unit.arrays.items()} == {
            k: v.tobytes() for k, v in there[name].arrays.items()
        }
        assert unit.record["plan"] == there[name].record["plan"] and unit.record["plan"].endswith(
            ", 1 thread"
        )
    assert carry_out_by_ray(
        read_spec(spec), Store(tmp_path / "ray"), SweepOptions(quiet=True), 2, []
    ) == (4, 0, 0, 0)


DEADLY = """
import dataclasses, os, signal
import cfljax
from cfljax.methods.fedavg import FedAvg

@cfljax.register_method("deadly")
@dataclasses.dataclass(frozen=True)
class Deadly(FedAvg):
    '''Ends the process that trains it, but for the one of the sweep.'''

    def prepare(self, ask, state):
        if os.getpid() != {sweep}:
            os.kill(os.getpid(), signal.SIGKILL)
        return state
"""


@pytest.mark.rare
def test_a_batch_whose_workers_all_die_is_a_failed_run_and_the_sweep_goes_on(tmp_path):
    """They die of their method: who would kill them from here may come when the run is over."""
    pytest.importorskip("ray")
    plugin = tmp_path / "deadly.py"
    plugin.write_text(DEADLY.format(sweep=os.getpid()))
    spec = tomllib.loads(SPEC) | {"plugins": [str(plugin)], "seeds": [0]}
    spec |= {"method": ["fedavg", "deadly"]}
    options = SweepOptions(quiet=True, launcher=RayOptions(retries=1))
    outcome = carry_out_by_ray(read_spec(spec), Store(tmp_path / "r"), options, 2, [])
    assert (outcome.done, outcome.failed) == (1, 1)
    errors = {u.record["method"]: u.record["error"] for u in units(tmp_path / "r").values()}
    assert not errors["fedavg"] and errors["deadly"].startswith("its worker died 2 times")
