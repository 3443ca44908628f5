"""What cheaper products cost in accuracy, as far as a CPU can show it: the same runs with the
factors of every matrix product rounded as a card does.

    CFLJAX_DATA=FOLDER_WITH_mnist.npz python -m benchmarks.precision --json FILE

`high` is TF32 on NVIDIA GPUs (10 bits of mantissa), `default` bfloat16 (7 bits) on TPUs; sums stay
float32.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accelerator_pieces import ALL
from benchmarks.markdown import markdown
from benchmarks.measure import write_rows
from benchmarks.shared import data_folder

MANTISSA = {"highest": None, "high": 10, "default": 7}
"""`train.precision` -> bits of the factors' mantissas."""
CASES = {
    "Q": (50, 10),
    "QI": (50, 10),
    "W1": (50, 10),
    "W2": (50, 10),
    "W4": (50, 3),
    "W3": (20, 3),
}
"""Workload -> (rounds, seeds)."""


def round_factors(bits: int) -> None:
    """Round the factors of every matrix product that this process traces. cfljax's own forms of a
    CNN are products, too."""
    import jax
    from jax._src.lax import lax  # where the derivative of a product finds it

    whole = lax.dot_general

    def rounded(left: Any, right: Any, *arguments: Any, **options: Any) -> Any:
        left, right = (
            jax.lax.reduce_precision(side, 8, bits) if side.dtype == np.float32 else side
            for side in (left, right)
        )
        return whole(left, right, *arguments, **options)

    lax.dot_general = jax.lax.dot_general = rounded


def accuracies(name: str, precision: str, rounds: int, seeds: int, data: str | None) -> list[float]:
    """Return the last accuracy of each seed."""
    if MANTISSA[precision] is not None:
        round_factors(MANTISSA[precision])
    import cfljax

    spec = ALL[name].spec(rounds, None if data is None else Path(data))
    model = spec["model"] | ({"conv": "windows"} if spec["model"]["name"] == "cnn" else {})
    return [
        float(
            cfljax.run(
                spec["method"][0], spec["data"], model, seed=seed, train=spec["train"]
            ).summary["accuracy_last"]
        )
        for seed in range(seeds)
    ]


def case(name: str, rounds: int, seeds: int) -> dict[str, Any]:
    """Return the accuracies of a workload with each precision, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="cfljax-precision-") as folder:
        data, words = data_folder(ALL[name], Path(folder))
        found = {}
        for precision in MANTISSA:
            arguments = [name, precision, rounds, seeds, None if data is None else str(data)]
            command = [sys.executable, "-m", "benchmarks.precision", "--one", json.dumps(arguments)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                sys.exit(
                    f"{name}, {precision}: {(ended.stderr.strip().splitlines() or ['failed'])[-1]}"
                )
            found[precision] = json.loads(ended.stdout.splitlines()[-1])
    return {
        "workload": name,
        "about": ALL[name].about,
        "data": words,
        "rounds": rounds,
        "seeds": seeds,
        "accuracy": found,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table in points of accuracy: the mean, how far the means are off, and how far a seed
    moves it."""
    heads = [
        "workload",
        "rounds",
        "seeds",
        "accuracy",
        "deviation",
        "high",
        "default",
        "one seed, high",
        "one seed, default",
    ]
    lines = []
    for row in rows:
        found = {name: 100 * np.array(values) for name, values in row["accuracy"].items()}
        best, others = found["highest"], [found["high"], found["default"]]
        means = [f"{np.mean(each - best):+.2f}" for each in others]
        most = [f"{np.abs(each - best).max():.2f}" for each in others]
        spread = f"{np.std(best, ddof=1):.2f}" if len(best) > 1 else "–"
        lines.append(
            [
                row["workload"],
                row["rounds"],
                row["seeds"],
                f"{best.mean():.2f}",
                spread,
                *means,
                *most,
            ]
        )
    return markdown(heads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workloads",
        type=lambda text: text.split(","),
        default=list(CASES),
        help=f"of {', '.join(CASES)}",
    )
    parser.add_argument("--rounds", type=int, help="default: 50, 20 of W3")
    parser.add_argument("--seeds", type=int, help="default: 10, 3 of W3 and W4")
    parser.add_argument("--json", type=Path, help="where the rows go")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(accuracies(*json.loads(given.one))))
        return
    rows: list[dict[str, Any]] = []
    for name in given.workloads:
        rounds, seeds = CASES[name]
        rows.append(case(name, given.rounds or rounds, given.seeds or seeds))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        write_rows(rows, given.json)
    print(table(rows))


if __name__ == "__main__":
    main()
