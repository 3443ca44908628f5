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
    flags = ["--targets", TARGETS[package], "--workloads", "quickstart", "--methods", "fedavg,ifca", "--kernels", "pallas,xla"]
    flags += ["--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.aot", *flags], capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"}
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [(row["target"], row["method"], row["plan"]) for row in rows] == [
        (target, method, kernel)
        for target in TARGETS[package].split(",")
        for method in ("fedavg", "ifca")
        for kernel in ("pallas", "xla")
    ]
    for row in rows:
        assert "error" not in row, row
        assert row["one_kernel"] == (row["plan"] == "pallas") and row["predicted_s"] > 0
        assert row["launches_per_step"] == 0 if row["one_kernel"] else 0 < row["launches_per_step"] < 100
        if not row["one_kernel"]:
            small = row["needed_bytes"] < 10e6
            high, low = (5, 5) if ":" in row["target"] else (1.85 if small else 1.5, 1.5)  # as docs/accelerators.md says
            assert 1 / low < row["predicted_bytes"] / row["needed_bytes"] < high
        assert bool(row["collectives"]) == (":" in row["target"]) and row["collectives_in_steps"] == 0
        assert {loop["name"] for loop in row["loops"]} >= ({"rounds"} if row["one_kernel"] else {"rounds", "local_steps"})
