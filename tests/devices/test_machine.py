"""A machine is a value: it is measured once, plans follow from it, and it need not be present."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.devices import machine as module
from cfljax.devices.machine import Speed, describe_machine, list_messages, measure, read_or_measure
from cfljax.devices.mesh import AUTO, Shape
from cfljax.errors import SpecError
from cfljax.experiment import assemble, execution
from tests import machines

SPEED = Speed(step=4e-6, small=2e-11, large=1e-11, value=2e-10)
DATA = {"name": "blobs", "samples": 30_000, "partition": "quantity", "alpha": 0.3, "clients": 2000}
SPEC = {"data": DATA, "model": "mclr", "method": "ifca", "train": {"rounds": 2}}


@pytest.fixture(scope="module")
def run():
    return read_spec(SPEC).runs()[0]


def choice(run, machine, runs=1):
    federation = assemble.host_federation(run)
    return execution.choose_plan(run, assemble.model_of(run, federation), federation, machine, runs)


@pytest.mark.parametrize("machine", [machines.gpu(), machines.tpu()], ids=["gpu", "tpu"])
def test_an_absent_accelerator_gets_a_plan_with_clients_side_by_side(run, machine):
    plan = choice(run, machine).plan
    assert not plan.sequential and (plan.lanes == 0 or plan.lanes >= 128)
    assert choice(run, machines.cpu()).plan.sequential
    parts = assemble.assemble(run, 4, machine._replace(devices=1))
    assert (
        parts.plan.lanes == choice(run, machine._replace(devices=1), 4).plan.lanes
        and not parts.settings.sequential
    )


def test_an_absent_machines_devices_share_a_round(run):
    one, eight = (choice(run, machines.gpu(devices)) for devices in (1, 8))
    assert eight.devices == 8 and len(one.steps) == 8 * len(eight.steps)


def test_the_gram_form_follows_the_speed():
    many_steps = read_spec(SPEC | {"train": {"rounds": 2, "epochs": 50}}).runs()[0]
    assert choice(many_steps, machines.cpu(known_speed=SPEED._replace(value=1e-6))).plan.gram > 0
    assert choice(many_steps, machines.cpu(known_speed=SPEED._replace(large=1e-3))).plan.gram == 0


def test_for_a_short_run_nothing_is_measured(monkeypatch):
    monkeypatch.setattr("cfljax.devices.machine.read_or_measure", lambda _: pytest.fail("measured"))
    short, long = (
        read_spec(SPEC | {"train": {"rounds": rounds, "epochs": 5}}).runs()[0]
        for rounds in (1, 10**6)
    )
    plans = [
        choice(short, machines.cpu(known_speed=speed)).plan
        for speed in (None, SPEED._replace(large=1e-3))
    ]
    assert plans[0] == plans[1] and plans[0].quick
    with pytest.raises(pytest.fail.Exception, match="measured"):
        choice(long, machines.cpu(known_speed=None))


def test_a_mesh_is_fitted_to_the_devices():
    assert machines.gpu(8, mesh=AUTO).shape(4) == (4, 2) and machines.gpu(8, mesh=AUTO).shape() == (
        1,
        8,
    )
    assert machines.gpu(4, mesh=AUTO, processes=2).shape(4) == (4, 2)
    assert machines.cpu(8).shape() == (1, 8) and machines.cpu(8).shape(wanted=2) == (1, 2)
    with pytest.raises(
        SpecError, match="--mesh runs=1,clients=9: needs 9 devices, but there are 8"
    ):
        machines.gpu(8, mesh=Shape(1, 9)).shape()
    with pytest.raises(SpecError, match="runs must divide 4"):
        machines.gpu(4, mesh=Shape(8, 1), processes=2).shape()
    with pytest.raises(SpecError, match="train.plan.devices = 9: this process has 8$"):
        machines.gpu(8).shape(wanted=9)
    assert machines.gpu(8, mesh=AUTO).most_groups == 8 and machines.gpu(8).most_groups == 1


def test_this_machine_is_what_jax_computes_on():
    import jax

    machine = describe_machine(Shape(1, 1), SPEED)
    assert (machine.backend, machine.devices, machine.processes) == (
        jax.default_backend(),
        jax.local_device_count(),
        1,
    )
    assert (machine.mesh, machine.speed) == (Shape(1, 1), SPEED)
    assert machine.memory > 1 << 28 and machine.threads >= 1


def test_the_machine_is_measured_once_and_the_measurement_kept(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "measure", lambda: calls.append(1) or SPEED)
    file = tmp_path / "deep" / "speed.json"
    assert read_or_measure(file) == read_or_measure(file) == SPEED
    read_or_measure.cache_clear()
    assert read_or_measure(file) == SPEED
    assert len(calls) == 1
    file.write_text(json.dumps({"step": 1}))
    read_or_measure.cache_clear()
    assert read_or_measure(file) == SPEED
    assert len(calls) == 2


def test_a_measurement_is_plausible():
    assert np.all([0 < value < 1e-2 for value in measure()])


def test_a_sweep_says_what_it_computes_on_and_that_an_accelerator_is_not_used(
    tmp_path, monkeypatch
):
    assert list_messages(machines.gpu(2)) == ["computing on NVIDIA H100, 2 devices"]
    monkeypatch.delenv("JAX_PLATFORMS")
    assert list_messages(machines.cpu(2), tmp_path) == []
    (tmp_path / "accel0").touch()
    (line,) = list_messages(machines.cpu(2), tmp_path)
    assert (
        line.startswith("computing on the CPU, although there is an accelerator: ")
        and 'pip install "jax[tpu]"' in line
    )
    (tmp_path / "accel0").rename(tmp_path / "nvidia0")
    assert "jax[cuda12]" in list_messages(machines.cpu(2), tmp_path)[0]
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert list_messages(machines.cpu(2), tmp_path) == []


WITHOUT_JAX = """
import os, sys
from cfljax import lazy
lazy.wait()
from pathlib import Path
from cfljax.devices.cores import has_only_cpu
from cfljax.devices.machine import describe_machine
def ask(**more):
    before = dict(os.environ)
    os.environ.update(more)
    found = has_only_cpu(Path(sys.argv[2]))
    os.environ.clear(), os.environ.update(before)
    return found
none, four = {"JAX_PLATFORMS": ""}, "--xla_force_host_platform_device_count=4"
answers = [ask(**none), ask(JAX_PLATFORMS="cpu"), ask(JAX_PLATFORMS="cpu", JAX_PLATFORM_NAME="gpu"), ask(JAX_PLATFORMS="tpu"),
    ask(**none, XLA_FLAGS=four), ask(**none, XLA_FLAGS="flags.txt"), ask(**none, JAX_NUM_CPU_DEVICES="2"),
    ask(**none, TPU_LIBRARY_PATH="libtpu.so")]
if os.listdir(sys.argv[1]) == ["dev"]:
    Path(sys.argv[2], "accel0").touch()
sys.path.insert(0, sys.argv[1])
answers += [ask(**none), ask(JAX_PLATFORMS="cpu")]
sys.path.pop(0)
first = describe_machine()
waited = "jax" not in sys.modules
lazy.load()
print(*map(int, answers), waited, has_only_cpu(), first == describe_machine())
"""


@pytest.mark.skipif(
    any(map(importlib.util.find_spec, ("jax_plugins", "libtpu"))),
    reason="an accelerator can be had here",
)
@pytest.mark.parametrize("kind", ["jax_plugins", "libtpu", "of another name", "a file in /dev"])
def test_a_cpu_is_known_without_jax_where_it_can_have_nothing_else(kind, tmp_path):
    """And it is the machine that JAX then finds. The kinds are how JAX finds what brings an
    accelerator."""
    if kind == "of another name":
        (tmp_path / "lab-1.dist-info").mkdir()
        (tmp_path / "lab-1.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: lab\nVersion: 1\n"
        )
        (tmp_path / "lab-1.dist-info" / "entry_points.txt").write_text(
            "[jax_plugins]\nlab = lab_chip\n"
        )
    elif kind != "a file in /dev":
        (tmp_path / kind).mkdir()
    dev = tmp_path / "dev"
    dev.mkdir()
    words = [sys.executable, "-c", WITHOUT_JAX, str(tmp_path), str(dev)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.stdout.split() == [*"1100000001", "True", "False", "True"], found.stderr
