"""The independent programs run, and learn what can be learnt: images that show their label."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.often import rarely

PROGRAM = Path(__file__).parents[2] / "experiments" / "independent.py"


def images(labels, rng):
    """A bright stripe for each label, on noise."""
    x = rng.integers(0, 40, (len(labels), 28, 28), dtype=np.uint8)
    x[np.arange(len(labels)), labels % 28] = 250
    return x


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    for name, first, train, test in (("mnist", 0, 3000, 300), ("emnist", 36, 800, 100)):  # EMNIST's letter a is class 36
        y, y_test = (first + np.arange(count) % 10 for count in (train, test))
        np.savez(folder / f"{name}.npz", x_train=images(y, rng), y_train=y, x_test=images(y_test, rng), y_test=y_test)
    return folder


CELLS = {
    "ocfl_table2": ["IID", "two shards", "one shard"],
    "femnist": [f"{name}, leak {leak}" for leak in ("true", "false") for name in ("fedavg", "ifca", "fg-edc")],
    "rfedavg": ["FedAvg", "RFedAvg"],
}


@pytest.mark.parametrize(("table", "rounds"), [rarely("ocfl_table2", 20), rarely("femnist", 2), rarely("rfedavg", 20)])
def test_every_cell_is_told_and_better_than_guessing(data, table, rounds):
    words = [sys.executable, PROGRAM, table, "--data", data, "--seeds", "1", "--rounds", str(rounds)]
    flags = os.environ["XLA_FLAGS"].replace("--xla_cpu_use_fusion_emitters=false", "")  # computing takes the time here
    done = subprocess.run(words, env=os.environ | {"XLA_FLAGS": flags}, check=True, capture_output=True, text=True)
    found = dict(line.split(", seed 0: maximum ") for line in done.stdout.splitlines())
    assert list(found) == CELLS[table]
    assert all(20 < float(numbers.split(", last ten ")[0]) <= 100 for numbers in found.values()), found
