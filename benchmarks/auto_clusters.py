"""How often `clusters = "auto"` finds the true number of clusters, from 1 to 8: on the digits of scikit-learn, with 40 clients, a
hidden layer of 64 and one epoch of training. Each seed draws the partition and the model anew. Where there are no groups, one
cluster is right.

    python -m benchmarks.auto_clusters [--seeds 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

PARTITIONS: dict[str, tuple[dict[str, Any], int]] = {
    "rotated": ({"groups": 4}, 4),
    "label_swap": ({"groups": 4}, 4),
    "shards": ({}, 1),
    "dirichlet": ({"alpha": 0.3}, 1),
}
"""Name → (its options, the number of groups; 1: there are none)."""
MOST = 8
FIRST = 100
"""The first seed: the rule was settled on earlier ones."""
Row = dict[str, Any]


def moves_of(partition: str, seed: int) -> Any:
    """f32[n, d]: the first updates of the clients, as a method with `clusters = "auto"` gets them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from cfljax import keys, models
    from cfljax.config import read_spec
    from cfljax.experiment.assemble import host_federation
    from cfljax.local.schedule import Work
    from cfljax.local.solver import Solver
    from cfljax.methods.shared.auto import first_moves
    from cfljax.types import Plan

    data = {"name": "digits", "partition": partition, "clients": 40, "seed": seed, **PARTITIONS[partition][0]}
    (run,) = read_spec({"data": data, "method": ["ifca"]}).runs()
    federation = jax.device_put(host_federation(run))
    model = models.build("mlp", {"hidden": [64]}, tuple(federation.pool.x.shape[1:]), 10)
    solver = Solver(model, Work(1, None, 10), plan=Plan(1, 0, 0))
    return np.asarray(first_moves(model, solver, "ifca")(keys.root(seed), federation, {"lr": jnp.float32(0.1)}))


def measure(seeds: int) -> list[Row]:
    """A row for each partition and criterion."""
    from cfljax.kernels.number import CRITERIA, choose_number

    rows = []
    for partition, (options, truth) in PARTITIONS.items():
        moves = [moves_of(partition, seed) for seed in range(FIRST, FIRST + seeds)]
        for how in CRITERIA:
            counts = Counter(choose_number(each, MOST, how).clusters for each in moves)
            found = {str(number): counts[number] for number in sorted(counts)}
            about = {"partition": partition, "options": options, "auto": how, "truth": truth, "seeds": seeds}
            rows.append(about | {"right": counts[truth], "found": found})
    return rows


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| partition | true number | `auto` | right | found: how often |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        found = ", ".join(f"{number}: {times}" for number, times in row["found"].items())
        truth = "none" if row["truth"] == 1 else row["truth"]
        lines.append(f"| `{row['partition']}` | {truth} | `{row['auto']}` | {row['right']} of {row['seeds']} | {found} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    rows = measure(options.seeds)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
