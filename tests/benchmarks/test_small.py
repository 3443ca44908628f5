"""Benchmarks that no other test starts, in small: they run, and write the rows that their pages are made of."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import convolutions

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long


def benchmark(name, *flags, **more):
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"} | more
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, flags)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_an_evaluation_costs(tmp_path):
    benchmark("evaluation", "--workloads", "toy", "--rounds", "4", "--repeats", "2", "--json", tmp_path / "rows.json")
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["about"]["rounds"] == 4 and {"median_s", "min_s", "max_s"} <= row.keys() and 0.3 < row["accuracy"] <= 1


def test_convolutions_are_timed_in_both_forms(capsys):
    assert convolutions.main(["--small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cpu") and len(lines) == 3 + len(convolutions.LAYERS)
    assert all(float(cell) > 0 for line in lines[3:] for cell in line.strip("| ").split(" | ")[-3:])


def test_the_kernels_agree_with_their_peers(tmp_path):
    flags = ("--small", "--only", "cosine,kmeans", "--json", tmp_path / "rows.json", "--markdown", tmp_path / "page.md")
    benchmark("kernels", *flags)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == 2 and all(row["median_s"] > 0 and row["error"] < 1e-2 for row in rows)
    assert "python -m benchmarks.kernels --small" in (tmp_path / "page.md").read_text()
    benchmark("kernels", "--no-peers", *flags)
    cosine, kmeans = json.loads((tmp_path / "rows.json").read_text())
    assert cosine["sklearn_s"] is None and cosine["error"] < 1e-2 and kmeans["error"] is None


def test_cost_over_clients_and_its_page(tmp_path):
    benchmark("scaling", "--small", "--axis", "clients", "--out", tmp_path)
    points = json.loads((tmp_path / "scaling.json").read_text())["points"]["clients"]
    assert len(points) >= 2 and all(point["seconds_round"] > 0 for point in points)
    assert f"{points[-1]['clients']:,}" in (tmp_path / "scaling.md").read_text()
