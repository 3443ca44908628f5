"""The benchmarks that look at cfljax alone."""

import json

import numpy as np
import pytest

from benchmarks import accelerator, shapes, table3
from benchmarks.inside import time_rounds
from benchmarks.setup_peers import PEERS, peers_of
from benchmarks.workloads import WORKLOADS
from cfljax.config import read_spec


def test_every_round_but_the_first_and_the_last_is_timed():
    found = time_rounds(WORKLOADS["toy"].spec(5))
    assert len(found.seconds) == 3 and min(found.seconds) > 0


def test_every_spec_is_valid():
    for workload in (*WORKLOADS.values(), *(one for _, one in shapes.cases())):
        assert len(read_spec(workload.spec(3)).runs()) == 1


def test_the_row_of_table_3_has_its_ten_methods_alone(tmp_path):
    spec = read_spec(table3.row_of_the_table(tmp_path), ["seeds=[0]", "train.rounds=2"])
    labels = [run.label for run in spec.runs()]
    assert len(labels) == len(set(labels)) == table3.METHODS and {run.train.rounds for run in spec.runs()} == {2}


def test_power_law_sizes_have_the_total_of_equal_ones():
    sizes = shapes.power_law(1000, 60_000)
    assert sizes.sum() == 60_000 and sizes.min() >= 1
    assert sizes.max() > 50 * np.median(sizes)


def test_verdicts_name_the_ratio():
    measured = (("equal", 1.0), ("power", 1.5))
    rows = [{"workload": f"mclr-10-{law}", "median_s": s, "about": {"seconds_per_step": s}} for law, s in measured]
    assert shapes.verdicts(rows)[0] == "mclr-10: power law 1.50 times equal sizes: DOES NOT HOLD"


@pytest.mark.long
def test_the_accelerator_benchmark_runs_small_anywhere(tmp_path):
    file = tmp_path / "device.json"
    assert accelerator.main(["--tiny", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert [r["workload"] for r in rows] == ["agreement", "toy", "toy", "fedavg-2-seeds-2-rates"]
    assert rows[0]["about"]["one_kernel"] and rows[0]["about"]["error"] < 1e-4
    assert rows[1]["about"]["machine"]["kind"] and 0 < rows[1]["about"]["share_of_peak"] < 1
    assert rows[3]["about"]["runs"] == 4 and rows[3]["about"]["ratio"] > 0
    assert accelerator.main(["--tiny", "--json", str(file)]) == 0  # nothing is left to do
    assert json.loads(file.read_text()) == rows


def test_peers_are_pinned_and_named():
    assert peers_of("torch, fedjax") == ["torch", "fedjax"]
    for peer in PEERS.values():
        assert all("==" in package or package == "numpy" for package in peer.packages)
        assert peer.packages or peer.environment in PEERS
