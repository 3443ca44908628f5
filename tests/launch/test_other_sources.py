"""A sweep that goes on after the package has changed: no run is computed half by one program and
half by another."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cfljax
from cfljax import software
from tests.launch.processes import FLAGS, arrays
from tests.patience import PATIENCE

SPEC = {
    "data": {"name": "blobs", "samples": 200, "partition": "label_permutation", "groups": 2, "clients": 6}, "model": "mclr",
    "method": {"name": "ifca", "clusters": 2}, "train": {"rounds": 4, "participation": 4},
}  # fmt: skip
SWEEP = """
import json, sys
from cfljax.config import read_spec
from cfljax.launch.checkpoints import Checkpoints
from cfljax.launch.sweep import SweepOptions, carry_out
from cfljax.store import Store

spec, pause, *folders = json.loads(sys.argv[1])
save = Checkpoints.save

def last(self, make):
    save(self, make)
    raise KeyboardInterrupt

if pause:
    Checkpoints.save = last
for folder in folders:
    try:
        carry_out(read_spec(spec), Store(folder), SweepOptions(quiet=True))
    except KeyboardInterrupt:
        pass
"""


def sweep(package, pause, *folders):
    """Standard error of a process that carries out the sweep in these folders. `pause`: only until
    its first checkpoint."""
    own = {
        "PYTHONPATH": str(package),
        "XLA_FLAGS": FLAGS,
        "CFLJAX_CHECKPOINT": "0",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", SWEEP, json.dumps([SPEC, pause, *map(str, folders)])]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=package, env=os.environ | own, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_changed_source_sets_the_checkpoint_aside_and_the_run_is_that_of_the_new_source(tmp_path):
    package, paused, whole = tmp_path / "package", tmp_path / "paused", tmp_path / "whole"
    shutil.copytree(
        Path(cfljax.__file__).parent,
        package / "cfljax",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    assert (
        sweep(package, True, paused) == ""
        and list((paused / "checkpoints").iterdir())
        and arrays(paused) == {}
    )
    source = package / "cfljax" / "kernels" / "mix.py"
    text = source.read_text()
    assert text.count("_finish(old + moved") == 1
    source.write_text(text.replace("_finish(old + moved", "_finish(old + 0.5 * moved"))
    said = sweep(package, False, paused, whole)
    assert (
        said.count("cannot be used: it was made by cfljax sources") == 1
        and said.count("Warning") == 1
    )
    assert [file.suffix for file in (paused / "set_aside").iterdir()] == [".npz"]
    ((mine, ours),) = zip(arrays(paused).values(), arrays(whole).values(), strict=True)
    assert mine.keys() == ours.keys() and all(
        mine[name].tobytes() == ours[name].tobytes() for name in mine
    )


def test_the_software_names_what_computes(monkeypatch):
    found = software.software()
    assert {
        "cfljax sources",
        "python",
        "jax",
        "jaxlib",
        "numpy",
        "flax",
        "optax",
        "scikit-learn",
        "scipy",
    } <= set(found)
    for flags, wanted in (
        ("--xla_a=1 --xla_cpu_collective_call_warn_stuck_timeout_seconds=9", "--xla_a=1"),
        ("", None),
    ):
        monkeypatch.setenv("XLA_FLAGS", flags)
        assert software.software.__wrapped__().get("XLA_FLAGS") == wanted
