"""Successive halving (`cfljax tune`) against the full grid with the same rounds: what each spends,
and what it chooses. On the digits of scikit-learn, with 40 clients and a hidden layer of 64; 27
settings of each method. Each seed draws the partition and the model again, and is a search of its
own; what was chosen is then run on fresh seeds.

    python -m benchmarks.halving [--seeds 3] [--fresh 3] [--out FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import markdown

PARTITIONS: dict[str, dict[str, Any]] = {"dirichlet": {"alpha": 0.3}}
METHODS: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": [0.01, 0.1, 1.0]},
    "ifca": {"clusters": [2, 4, 8]},
}
TRAIN = {"lr": [0.03, 0.1, 0.3], "epochs": [1, 2, 5], "batch": 10, "rounds": 27, "eval_every": 3}
FIRST, REDUCE = 3, 3
TUNED = 10_000
"""The first seed of a search."""
Row = dict[str, Any]


def spec_of(partition: str, method: str, seed: int, first: int) -> dict[str, Any]:
    """A search; with `first` = `TRAIN["rounds"]` it has one rung, and is the full grid."""
    data = {
        "name": "digits",
        "partition": partition,
        "clients": 40,
        "validation": 0.2,
        "seed": "run",
        **PARTITIONS[partition],
    }
    search = {"first": first, "reduce": REDUCE, "seeds": [seed]}
    model = {"name": "mlp", "hidden": [64]}
    return {
        "data": data,
        "model": model,
        "train": TRAIN,
        "method": [{"name": method, **METHODS[method]}],
        "search": search,
    }


def searched(
    spec: dict[str, Any], fresh: list[int], folder: Path
) -> tuple[list[dict[str, Any]], int, float]:
    """(the settings as `tune.json` has them, the rounds spent, the mean test accuracy of the chosen
    one on fresh seeds)."""
    import cfljax

    results = cfljax.tune(spec, folder, then_compare=fresh, quiet=True)
    table = json.loads((folder / "tune.json").read_text())
    (group,) = table["groups"]
    spent = sum(table["rungs"][len(each["scores"]) - 1] for each in group["settings"])
    return (
        group["settings"],
        spent,
        float(np.mean([run.summary["accuracy_at_best_val"] for run in results])),
    )


def chosen(settings: list[dict[str, Any]]) -> int:
    """The position of the best of the settings that came to the end, as `tune` chooses it."""
    from cfljax.launch.search_plan import rank_best

    last = max(len(each["scores"]) for each in settings)
    return rank_best(
        [each["scores"][-1] if len(each["scores"]) == last else None for each in settings], 1, 1
    )[0]


def compare(partition: str, method: str, seed: int, fresh: list[int], folder: Path) -> Row:
    """A search by halving, and the full grid with the same rounds."""
    base = folder / f"{partition}-{method}-{seed}"
    halves, cost, accuracy = searched(
        spec_of(partition, method, seed, FIRST), fresh, base / "halving"
    )
    whole, all_rounds, best_accuracy = searched(
        spec_of(partition, method, seed, int(TRAIN["rounds"])), fresh, base / "grid"
    )
    mine, best = chosen(halves), chosen(whole)
    scores = [-1.0 if each["scores"][-1] is None else each["scores"][-1] for each in whole]
    return {
        "partition": partition,
        "method": method,
        "seed": seed,
        "settings": len(whole),
        "rounds": {"halving": cost, "grid": all_rounds},
        "chosen": {"halving": whole[mine]["varies"], "grid": whole[best]["varies"]},
        "val_accuracy": {"halving": scores[mine], "grid": scores[best]},
        "rank": 1 + sum(score > scores[mine] for score in scores),
        "as_good": sum(score == scores[best] for score in scores),
        "test_accuracy": {"halving": accuracy, "grid": best_accuracy},
    }


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    heads = [
        "partition",
        "method",
        "seed",
        "rounds spent",
        "rank in the grid",
        "validation accuracy, %",
        "test accuracy, %",
    ]
    return markdown(heads, map(_cells, rows))


def _cells(row: Row) -> list[str]:
    percent = [
        f"{100 * row[key]['halving']:.1f} / {100 * row[key]['grid']:.1f}"
        for key in ("val_accuracy", "test_accuracy")
    ]
    spent = f"{row['rounds']['halving']} / {row['rounds']['grid']}"
    rank = f"{row['rank']} of {row['settings']}"
    return [f"`{row['partition']}`", f"`{row['method']}`", str(row["seed"]), spent, rank, *percent]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="searches of each method and partition"
    )
    parser.add_argument(
        "--fresh", type=int, default=3, help="seeds on which the choices are compared"
    )
    parser.add_argument(
        "--out", type=Path, help="keep the results folders here; started again, it goes on"
    )
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as base:
        folder, fresh = options.out or Path(base), list(range(options.fresh))
        for partition in PARTITIONS:
            for method in METHODS:
                for seed in range(TUNED, TUNED + options.seeds):
                    rows.append(compare(partition, method, seed, fresh, folder))
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
