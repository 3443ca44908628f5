"""Programs compiled for chips that are not there. Needs the compilers of the extra `aot`: see benchmarks/README.md."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

TARGETS = {"libtpu": "v5e,v5e:2x2", "jax_cuda12_plugin": "h200"}


@pytest.mark.parametrize("package", TARGETS)
def test_two_methods_compile(package, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    file = tmp_path / "rows.json"
    flags = ["--targets", TARGETS[package], "--workloads", "quickstart", "--methods", "fedavg,ifca", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.aot", *flags], capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())
    assert [(row["target"], row["method"]) for row in rows] == [
        (target, method) for target in TARGETS[package].split(",") for method in ("fedavg", "ifca")
    ]
    for row in rows:
        assert 0 < row["launches_per_step"] < 100 and 0 < row["needed_bytes"] < row["memory_bytes"]
        assert bool(row["collectives"]) == (":" in row["target"]) and row["collectives_in_steps"] == 0
        assert {loop["name"] for loop in row["loops"]} >= {"rounds", "local_steps"}
