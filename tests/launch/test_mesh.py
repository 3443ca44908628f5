"""Many devices in one process, and several processes for one run."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from cfljax import mesh
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.store import Store

FEW = ("fedavg", "ifca")
SPEC = """
name = "shared"
data = { name = "blobs", samples = 2000, partition = "label_permutation", groups = 2, clients = 39 }
model = { name = "mclr" }
train = { rounds = 60, participation = 13, lr = 0.1, batch = 10, eval_every = 20 }
seeds = "0:3"
[[method]]
name = "ifca"
clusters = 2
"""


def test_what_a_mesh_may_look_like():
    assert mesh.parse("auto") == mesh.AUTO and mesh.parse("clients=4, runs=2") == (2, 4) and mesh.parse("runs=3") == (3, 1)
    for wrong in ("", "runs", "runs=0", "clients=2,clients=3", "rows=2", "2x4", "runs=2;clients=4"):
        with pytest.raises(SpecError, match="must be auto, or such as runs=2,clients=4"):
            mesh.parse(wrong)


def python(*words, **more):
    environment = os.environ | {"JAX_PLATFORMS": "cpu"} | more.pop("env", {})
    return subprocess.Popen([sys.executable, *map(str, words)], stdout=-1, stderr=-1, text=True, env=environment, **more)


def every(methods):
    process = python("-m", "tests.launch.on_eight_devices", *methods, env={"XLA_FLAGS": FLAGS})
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err[-3000:]
    assert out.split() == list(methods)


FLAGS = "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0"  # compiling is most of the time


def test_eight_devices_agree_with_one():
    every(FEW)


def test_samples_are_dealt_out_and_the_results_are_the_same():
    every(["pool", "sharded:ifca"])


@pytest.mark.long
def test_eight_devices_agree_with_one_in_all_methods():
    every([name for name in METHODS if name not in FEW])


@pytest.mark.long
def test_eight_devices_with_their_own_clients_samples_agree_with_one_in_all_methods():
    every([f"sharded:{name}" for name in METHODS if name != "ifca"])


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start(spec, folder, number, port, *flags, **env):
    words = ["-m", "cfljax.sweep", spec, "--out", folder, "--mesh", "runs=2,clients=4", "--no-report", "--quiet", *flags]
    words += ["--distributed", "--coordinator", f"localhost:{port}", "--process-id", number, "--num-processes", 2]
    return python(*words, env={"XLA_FLAGS": FLAGS} | env)


def finish(process):
    try:
        out, err = process.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, err


def arrays(folder):
    store = Store(folder, read_only=True)
    return {name: store.read(name).arrays for name in store.ids()}


def by_seed(folder):
    """The ids of its units, which depend on the plan."""
    return [name for name, _ in sorted(Store(folder, read_only=True).records().items(), key=lambda item: item[1]["seed"])]


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def test_flags_that_do_not_go_together(spec, tmp_path):
    for flags, words in [
        (["--mesh", "2x4"], "--mesh 2x4"),
        (["--coordinator", "localhost:1"], "--distributed"),
        (["--mesh", "auto", "--workers", "2"], "--workers"),
    ]:
        process = python("-m", "cfljax.sweep", spec, "--out", tmp_path / "r", *flags)
        code, err = finish(process)
        assert code == 2 and words in err and err.count("\n") == 1


@pytest.mark.long
@pytest.mark.parametrize("pool", ["copied", "sharded"])
def test_two_processes_with_four_devices_each_agree_with_one_process_with_one(spec, tmp_path, pool):
    port = free_port()
    both = [start(spec, tmp_path / "two", number, port, "--set", f"train.plan.pool={pool}") for number in (0, 1)]
    assert [finish(process)[0] for process in both] == [0, 0]
    code, err = finish(python("-m", "cfljax.sweep", spec, "--out", tmp_path / "one", "--no-report", "--quiet", "--workers", 1))
    assert code == 0, err
    two, one = arrays(tmp_path / "two"), arrays(tmp_path / "one")
    assert len(two) == len(one) == 3
    for there, here in zip(by_seed(tmp_path / "two"), by_seed(tmp_path / "one"), strict=True):
        np.testing.assert_allclose(two[there]["history/accuracy"], one[here]["history/accuracy"], atol=0.01)
        np.testing.assert_array_equal(two[there]["labels"][1], one[here]["labels"][1])


LONG = ["--set", "train.rounds=200", "--set", "train.eval_every=100", "--set", "seeds=0:2"]


def together(spec, folder):
    """Two processes do the sweep to its end."""
    port = free_port()
    both = [start(spec, folder, number, port, *LONG) for number in (0, 1)]
    ends = [finish(process) for process in both]
    assert [code for code, _ in ends] == [0, 0], ends
    return arrays(folder)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "spec.toml").write_text(SPEC)
    return together(folder / "spec.toml", folder / "r")


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_process_dies_the_other_ends_and_both_go_on_from_the_checkpoint(spec, tmp_path, victim, uninterrupted):
    port = free_port()
    both = [start(spec, tmp_path / "r", number, port, *LONG, CFLJAX_CHECKPOINT="0") for number in (0, 1)]
    until = time.monotonic() + 150
    while not list((tmp_path / "r").glob("checkpoints/*.npz")) and time.monotonic() < until:
        time.sleep(0.2)
    both[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    code, err = finish(both[1 - victim])
    assert code != 0 and time.monotonic() - killed < 60
    assert "lost each other" in err or "another task died" in err
    finish(both[victim])
    assert not arrays(tmp_path / "r")
    resumed = together(spec, tmp_path / "r")
    begun = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    assert max(event.get("from", 0) for event in begun) > 0
    assert resumed.keys() == uninterrupted.keys() and len(resumed) == 2
    for name, found in resumed.items():
        assert found.keys() == uninterrupted[name].keys()
        for key, values in found.items():
            assert values.tobytes() == uninterrupted[name][key].tobytes(), key
