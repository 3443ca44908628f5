"""FedGroup's Table 2: the clients and samples of each data set, and the parameters of each model,
counted in what the specs make.

    CFLJAX_DATA=FOLDER python experiments/fedgroup_table2.py --out results/fedgroup_table2 [--seeds
    3]

Nothing is trained. The specs are of Table 3; each seed draws the data again. Samples are training
and test samples together, and a sample that several clients hold counts for each of them. An image
that is a training image of one client and a test image of another counts in `leaked`, the share of
such test images."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from cfljax.config import read_spec
from cfljax.experiment.assemble import model_of
from cfljax.experiment.federations import host_federation
from cfljax.store import Store, provenance

HERE = Path(__file__).parent
NAME = "FedGroup Table 2"
SPECS = {
    "MNIST-MCLR": ("fedgroup_table3_mnist_mclr.toml", []),
    "MNIST-MLP": ("fedgroup_table3_mnist_mlp.toml", []),
    "FEMNIST-MCLR": ("fedgroup_table3_femnist_mclr.toml", ["data.leak=true"]),
    "FEMNIST-MLP": ("fedgroup_table3_femnist_mlp.toml", ["data.leak=true"]),
    "Synthetic(1,1)-MCLR": ("fedgroup_table3_synthetic.toml", []),
    "Sent140-LSTM": ("fedgroup_table3_sent140.toml", []),
}
"""Row -> the spec and its flags."""


def counted(run):
    """Count what Table 2 has of a run: clients, samples and parameters; and the share of test
    images that somebody trains on."""
    federation = host_federation(run)
    train, test = (
        np.concatenate(
            [split.rows[s : s + n] for s, n in zip(split.start, split.count, strict=True)]
        )
        for split in (federation.train, federation.test)
    )
    return {
        "clients": federation.clients,
        "samples": len(train) + len(test),
        "parameters": model_of(run, federation).size,
        "leaked": np.isin(test, train).mean(),
    }


def main():
    """Write a results folder with a unit per row and seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    flags = parser.parse_args()
    store, units = Store(flags.out), []
    for number, (row, (spec, sets)) in enumerate(SPECS.items()):
        for seed in range(flags.seeds):
            begun = time.perf_counter()
            run = read_spec(
                HERE / spec, ['method=["fedavg"]', "seeds=[0]", f"data.seed={seed}", *sets]
            ).runs()[0]
            numbers = counted(run)
            known = {
                "method": "fedavg",
                "label": row,
                "seed": seed,
                "status": "done",
                "config": run.resolved(),
                "varies": {},
            }
            made = {"timings": {"setup": time.perf_counter() - begun}, "summary": {}}
            units.append(f"table2-{number}-{seed}")
            arrays = {
                f"diag/fedavg/{name}": np.array(value, np.float64)
                for name, value in numbers.items()
            }
            store.write(units[-1], {"id": units[-1], **known, **made, **provenance()}, arrays)
            print(
                f"{row}, draw {seed}: "
                f"{', '.join(f'{name} {value:,.6g}' for name, value in numbers.items())}"
            )
    store.write_plan({"name": NAME, "units": units})


if __name__ == "__main__":
    main()
