"""The benchmarks that look at cfljax alone."""

from benchmarks import table3
from benchmarks.inside import time_rounds
from benchmarks.setup_peers import PEERS, peers_of
from benchmarks.workloads import WORKLOADS
from cfljax.config import read_spec


def test_every_round_but_the_first_and_the_last_is_timed():
    found = time_rounds(WORKLOADS["toy"].spec(5))
    assert len(found.seconds) == 3 and min(found.seconds) > 0


def test_every_spec_is_valid():
    for workload in WORKLOADS.values():
        assert len(read_spec(workload.spec(3)).runs()) == 1


def test_the_row_of_table_3_has_its_ten_methods_alone(tmp_path):
    spec = read_spec(table3.row_of_the_table(tmp_path), ["seeds=[0]", "train.rounds=2"])
    labels = [run.label for run in spec.runs()]
    assert len(labels) == len(set(labels)) == table3.METHODS and {run.train.rounds for run in spec.runs()} == {2}


def test_peers_are_pinned_and_named():
    assert peers_of("torch, fedjax") == ["torch", "fedjax"]
    for peer in PEERS.values():
        assert all("==" in package or package == "numpy" for package in peer.packages)
        assert peer.packages or peer.environment in PEERS
