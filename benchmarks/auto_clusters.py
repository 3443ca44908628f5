"""How often `clusters = "auto"` finds the true number of clusters, from 1 to 8: on the digits of scikit-learn, with 40 clients, a
hidden layer of 64 and one epoch of training. Each seed draws the partition and the model anew. Where there are no groups, one
cluster is right. Also: what `merge_to = "auto"` makes of the clusters that OCFL finds.

    python -m benchmarks.auto_clusters [--seeds 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.markdown import markdown

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


def federation_of(partition: str, seed: int) -> Any:
    """The clients of a draw."""
    import jax

    from cfljax.config import read_spec
    from cfljax.experiment.assemble import host_federation

    data = {"name": "digits", "partition": partition, "clients": 40, "seed": seed, **PARTITIONS[partition][0]}
    (run,) = read_spec({"data": data, "method": ["ifca"]}).runs()
    return jax.device_put(host_federation(run))


@functools.cache
def model_and_solver() -> tuple[Any, Any]:
    """The model of the digits, and its training."""
    from cfljax import models
    from cfljax.local.schedule import Work
    from cfljax.local.solver import Solver
    from cfljax.types import Plan

    model = models.build("mlp", {"hidden": [64]}, (8, 8), 10)
    return model, Solver(model, Work(1, None, 10), plan=Plan(1, 0, 0))


@functools.cache
def setup_of(method: str, **options: Any) -> Any:
    """The setup of a method with these options: (partition, seed) -> what it prepares."""
    import jax.numpy as jnp

    from cfljax import keys
    from cfljax.methods import METHODS

    made = METHODS.entry(method).make(METHODS.check(method, options, f"method.{method}"), *model_and_solver())
    numbers = {"lr": jnp.float32(0.1), "participants": jnp.float32(40)}
    return lambda partition, seed: made.setup(keys.root(seed), federation_of(partition, seed), numbers)


def moves_of(partition: str, seed: int) -> Any:
    """f32[n, d]: the first updates of the clients, as a method with `clusters = "auto"` gets them."""
    import jax.numpy as jnp
    import numpy as np

    from cfljax import keys
    from cfljax.methods.shared.auto import first_moves

    moves = first_moves(*model_and_solver(), "ifca")
    return np.asarray(moves(keys.root(seed), federation_of(partition, seed), {"lr": jnp.float32(0.1)}))


def measure(seeds: int) -> list[Row]:
    """A row for each partition and criterion."""
    from cfljax.kernels.number import CRITERIA, choose_number

    rows = []
    for partition, (options, truth) in PARTITIONS.items():
        moves = [moves_of(partition, seed) for seed in range(FIRST, FIRST + seeds)]
        for how in CRITERIA:
            numbers = [choose_number(each, MOST, how).clusters for each in moves]
            about = {"partition": partition, "options": options, "auto": how, "truth": truth, "seeds": seeds}
            rows.append(about | {"right": numbers.count(truth), "found": counted(numbers)})
    return rows


def merged(seeds: int) -> list[Row]:
    """A row for each partition: the clusters of OCFL as OPTICS finds them, and after merging."""
    import numpy as np
    from sklearn.metrics import adjusted_rand_score

    rows = []
    for partition, (options, truth) in PARTITIONS.items():
        ari: dict[str, list[float]] = {"before": [], "after": []}
        left: dict[str, list[int]] = {"before": [], "after": []}
        for seed in range(FIRST, FIRST + seeds):
            group = np.asarray(federation_of(partition, seed).group)
            for when, merge_to in (("before", None), ("after", "auto")):
                labels = np.asarray(setup_of("ocfl", merge_to=merge_to, noise="isolate")(partition, seed)["labels"])
                left[when].append(len(np.unique(labels)))
                ari[when].append(float(adjusted_rand_score(group, labels)))
        about = {"partition": partition, "options": options, "truth": truth, "seeds": seeds}
        means = {when: float(np.mean(each)) if truth > 1 else None for when, each in ari.items()}
        rows.append(about | {"clusters": {when: counted(each) for when, each in left.items()}, "ari": means})
    return rows


def counted(numbers: list[int]) -> dict[str, int]:
    """Number → how often it was found."""
    counts = Counter(numbers)
    return {str(number): counts[number] for number in sorted(counts)}


def _often(found: dict[str, int]) -> str:
    return ", ".join(f"{number}: {times}" for number, times in found.items())


def table(rows: list[Row]) -> str:
    """The rows of `measure` in Markdown."""
    heads = ["partition", "true number", "`auto`", "right", "found: how often"]
    return markdown(heads, ([*_about(row), f"{row['right']} of {row['seeds']}", _often(row["found"])] for row in rows))


def merging(rows: list[Row]) -> str:
    """The rows of `merged` in Markdown."""

    def index(row: Row) -> str:
        return "–" if row["ari"]["before"] is None else f"{row['ari']['before']:.2f} → {row['ari']['after']:.2f}"

    heads = ["partition", "true number", "OPTICS: how often", "merged: how often", "Rand index"]
    return markdown(heads, ([*_about(row), *map(_often, row["clusters"].values()), index(row)] for row in rows))


def _about(row: Row) -> list[str]:
    """What a row was measured on and with, as far as it says so."""
    truth = "none" if row["truth"] == 1 else str(row["truth"])
    return [f"`{row['partition']}`", truth, *([f"`{row['auto']}`"] if "auto" in row else [])]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="draws whose clusters are counted and merged")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    found = {"number": measure(options.seeds), "merging": merged(options.seeds)}
    print(table(found["number"]), merging(found["merging"]), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
