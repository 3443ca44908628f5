"""All processes of a sweep compute what the one that laid down its plan has found, or end with one
line."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.devices import distributed
from cfljax.devices.machine import describe_machine
from cfljax.errors import DataError, SpecError
from cfljax.launch import ray_task, workers
from cfljax.launch.plan_file import OTHER_SWEEP_ERROR, fingerprint
from cfljax.launch.sweep import SweepOptions, agree_on_start, carry_out, prepare_batches
from cfljax.store import Store
from tests.data.test_contents import SMALL, write
from tests.packaging.test_plugins import METHOD


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "mine.npz")
    return SMALL | {
        "data": {"name": "mine", "path": str(tmp_path / "mine.npz"), "clients": 2},
        "seeds": [0, 1],
    }


def test_a_worker_with_other_data_ends_and_lays_down_nothing(table, tmp_path):
    text = "\n".join(
        f"{key} = {value!r}" for key, value in table.items() if key not in ("data", "train")
    )
    text += (
        f"\ndata = {{ name = 'mine', path = '{tmp_path / 'mine.npz'}', clients = 2 }}\ntrain = "
        f"{{ rounds = 1 }}\n"
    )
    (tmp_path / "spec.toml").write_text(text)
    spec = read_spec(tmp_path / "spec.toml")
    prepare_batches(spec, Store(tmp_path / "r"), SweepOptions(quiet=True))
    plan = (tmp_path / "r" / "plan.json").read_bytes()
    environment = os.environ | {workers.WORKER_VARIABLE: fingerprint(spec)}
    command = [
        sys.executable,
        "-m",
        "cfljax.sweep",
        str(tmp_path / "spec.toml"),
        "--out",
        str(tmp_path / "r"),
    ]
    command += ["--as-worker", "0/1", "--processors", str(min(os.sched_getaffinity(0)))]
    write(tmp_path / "mine.npz", seed=1)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and OTHER_SWEEP_ERROR in done.stdout and done.stderr == ""
    assert (tmp_path / "r" / "plan.json").read_bytes() == plan and not list(
        (tmp_path / "r" / "units").iterdir()
    )


def test_a_follower_and_a_task_with_other_data_say_so(table, tmp_path, monkeypatch):
    spec = read_spec(table)
    runs, first = spec.units(), fingerprint(spec)
    words = {"runs": [runs[0].id], "width": 1, "table": table, "sets": [], "plugins": []}
    assert ray_task._read_batch(words).first.id == runs[0].id
    write(tmp_path / "mine.npz", seed=1)
    monkeypatch.setattr(
        distributed,
        "gather",
        lambda word: [json.dumps(json.loads(word) | {"the spec": first}), word],
    )
    machine = describe_machine()
    for says in (
        lambda: agree_on_start(read_spec(table), machine),
        lambda: ray_task._read_batch(words | {"sets": ["name=again"]}),
    ):
        with pytest.raises(SpecError) as error:
            says()
        assert OTHER_SWEEP_ERROR in str(error.value) and "\n" not in str(error.value)


def test_a_task_whose_plugin_has_changed_since_does_not_run_it_under_the_old_id(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(METHOD)
    words = {
        "table": {"data": "digits", "method": "mine"},
        "sets": [],
        "plugins": [str(plugin)],
        "folder": str(tmp_path),
    }
    words |= {"width": 1, "devices": 1, "cache": False}
    ray_task.plugins.load(words["plugins"])
    (run,) = read_spec(words["table"]).units()
    words["runs"] = [run.id]
    assert ray_task._read_batch(words).first.id == run.id
    plugin.write_text(METHOD + "# changed\n")
    ray_task.plugins.load(words["plugins"])
    with pytest.raises(SpecError, match="reads other data files, plugins"):
        ray_task._read_batch(words)


def test_a_file_that_changes_between_the_plan_and_the_run_ends_the_sweep_in_one_line(
    table, tmp_path
):
    spec, store = read_spec(table), Store(tmp_path / "r")
    prepare_batches(spec, store, SweepOptions(quiet=True))
    write(tmp_path / "mine.npz", seed=1)
    with pytest.raises(
        DataError,
        match='^data "mine": has changed since the runs were planned; start the sweep again$',
    ):
        carry_out(spec, store, SweepOptions(quiet=True))
    assert store.ids() == []
    assert carry_out(read_spec(table), store, SweepOptions(quiet=True)).done == 2


def test_marks_are_those_of_the_runs(table, tmp_path):
    first = fingerprint(read_spec(table))
    assert (
        fingerprint(read_spec(table | {"name": "another"}))
        == first
        != fingerprint(read_spec(table | {"seeds": [0]}))
    )
    np.savez(
        tmp_path / "mine.npz",
        x_train=np.zeros((4, 2)),
        y_train=[0, 1, 0, 1],
        x_test=np.zeros((2, 2)),
        y_test=[0, 1],
    )
    assert fingerprint(read_spec(table)) != first


FEW = {
    "name": "blobs",
    "samples": 40,
    "classes": 1,
    "features": 2,
    "partition": "dirichlet",
    "clients": 8,
    "alpha": 0.3,
}


def test_data_of_one_shape_with_fewer_clients_that_train_have_a_program_of_their_own():
    """Seed 30 leaves five clients that train, seed 56 seven; all shapes are the same."""
    sent = {}
    for seed, drawn in ((30, 3), (56, 4)):
        data = FEW | {"min_samples": 0, "test": "global", "seed": seed}
        result = cfljax.run("fedavg", data, "mclr", rounds=1, participation=0.6)
        sent[drawn] = result.history["bytes_up"][-1]
    assert sent[4] / sent[3] == np.float32(4 / 3)


FLAGS = {
    "JAX_THREEFRY_PARTITIONABLE": "0", "JAX_ENABLE_X64": "1", "JAX_RANDOM_SEED_OFFSET": "7", "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict", "JAX_NUMPY_RANK_PROMOTION": "raise",
}  # fmt: skip


def noised():
    data = {"name": "blobs", "samples": 60, "clients": 4}
    result = cfljax.run(
        "fedavg",
        data,
        "mclr",
        rounds=1,
        train={"privacy": {"clip": 1.0, "noise": 0.5}, "compress": "int8"},
    )
    return f"{result.record['id']} {result.history['loss'].tobytes().hex()}"


def test_flags_of_jax_in_the_environment_change_no_number():
    """They are those of another process, and none is set in this one."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("JAX_")
    } | FLAGS
    code = "from tests.launch.test_same import noised; print(noised())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == noised().split()
