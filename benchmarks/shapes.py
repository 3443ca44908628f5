"""Large shapes: 10,000 participants of MCLR and 1,000 of the CNN per round, client sizes after a power law against equal ones
of the same total, and 10 to 64 clusters. To hold: power law within 1.3 times of equal, and time linear in the real steps.

    python -m benchmarks.shapes --json FILE
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inside import peak_rss_mib, time_rounds, use_all_cores
from benchmarks.measure import timed, write_rows
from benchmarks.shared import data_folder
from benchmarks.workloads import Workload
from cfljax.federation import PARTITIONS
from cfljax.registry.options import option
from cfljax.types import Parts, Source

BAR = 1.3


@dataclasses.dataclass(frozen=True)
class Sized:
    """Options of `benchmark_sized`."""

    clients: int = option(100, "number of clients", low=1)
    mean: int = option(60, "samples per client on average", low=1)
    law: str = option("equal", "sizes of the clients", choices=("equal", "power"))


def power_law(clients: int, total: int, exponent: float = 1.0) -> np.ndarray:
    """i64[C]: sizes proportional to rank to the power −exponent, at least 1, in random order, `total` in all."""
    shares = np.arange(1, clients + 1) ** -exponent
    sizes = 1 + np.floor(shares / shares.sum() * (total - clients)).astype(np.int64)
    sizes[: total - sizes.sum()] += 1
    return np.random.default_rng(0).permutation(sizes)


def sized(options: Sized, source: Source, rng: np.random.Generator) -> Parts:
    """Clients of equal or power-law sizes; samples are drawn with repetition, so that there can be any number of clients."""
    total = options.clients * options.mean
    sizes = np.full(options.clients, options.mean) if options.law == "equal" else power_law(options.clients, total)
    rows = rng.integers(len(source.y_train), size=total)
    test = len(source.y_train) + np.arange(min(1000, len(source.y_test)))
    return Parts(np.split(rows, np.cumsum(sizes)[:-1]), test, np.full(options.clients, -1, np.int32))


if "benchmark_sized" not in PARTITIONS:
    PARTITIONS.add("benchmark_sized", sized, Sized)


def workload(data: str, model: dict[str, Any], clients: int, mean: int, law: str, method: dict[str, Any] | None = None) -> Workload:
    """Everybody takes part, one epoch, batches of 10."""
    train = {"participation": 1.0, "epochs": 1, "batch": 10, "lr": 0.01}
    table = {"name": data, "partition": "benchmark_sized", "clients": clients, "mean": mean, "law": law}
    return Workload("", table, model, method or {"name": "fedavg"}, train, 1.0)


MCLR = {"name": "mclr"}
CNN = {"name": "cnn", "channels": [32, 64], "kernel": 3, "dense": [128]}


def cases(scale: int = 1) -> Iterator[tuple[str, Workload]]:
    """Name and workload; `scale` divides the numbers of clients, for a machine with less time."""
    for clients in (1_000, 3_000, 10_000):
        for law in ("equal", "power"):
            yield f"mclr-{clients // scale}-{law}", workload("mnist", MCLR, clients // scale, 60, law)
    for law in ("equal", "power"):
        yield f"cnn-{1_000 // scale}-{law}", workload("cifar10", CNN, 1_000 // scale, 20, law)
    for clusters in (10, 32, 64):
        method = {"name": "ifca", "clusters": clusters}
        yield f"ifca-{1_000 // scale}-{clusters}-clusters", workload("mnist", MCLR, 1_000 // scale, 60, "power", method)


def measure(name: str, workload: Workload, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds per round and per real step."""
    place, words = data_folder(workload, folder)
    found = time_rounds(workload.spec(rounds + 2, place))
    counts = np.asarray(found.federation.train.count)
    steps = int(np.sum(-(-counts // workload.train["batch"])))
    median = statistics.median(found.seconds)
    about = {"data": words, "clients": len(counts), "samples": int(counts.sum()), "largest": int(counts.max()), "steps": steps}
    about |= {"seconds_per_step": median / steps, "seconds_per_sample": median / int(counts.sum())}
    return timed(
        name, "cfljax", found.seconds, about, compile_s=found.output.seconds.compile, peak_rss_mib=peak_rss_mib(),
        accuracy=float(found.output.history["accuracy"][-1]),
    )  # fmt: skip


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """The promises, each with what was measured."""
    by_name = {r["workload"]: r for r in rows}
    lines = []
    for name, r in by_name.items():
        other = by_name.get(name.replace("-equal", "-power"))
        if name.endswith("-equal") and other:
            ratio = other["median_s"] / r["median_s"]
            lines.append(f"{name[:-6]}: power law {ratio:.2f} times equal sizes: {'holds' if ratio <= BAR else 'DOES NOT HOLD'}")
    for law in ("equal", "power"):
        each = [r["about"]["seconds_per_step"] for name, r in by_name.items() if name.startswith("mclr") and name.endswith(law)]
        if len(each) > 1:
            spread = f"{1e6 * min(each):.2f} to {1e6 * max(each):.2f} µs"
            lines.append(f"mclr, {law}: {spread} per step over cohorts from the smallest to the largest")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1, help="divide the numbers of clients by this")
    parser.add_argument("--only", default="", help="cases whose names start so")
    parser.add_argument("--json", type=Path)
    given, rows = parser.parse_args(arguments), []
    use_all_cores()
    with tempfile.TemporaryDirectory(prefix="cfljax-shapes-") as folder:
        for name, one in cases(given.scale):
            if name.startswith(given.only):
                rows.append(measure(name, one, given.rounds, Path(folder)))
                about, median = rows[-1]["about"], rows[-1]["median_s"]
                print(f"{name}: {median:.3f} s per round, {about['steps']:,} steps, largest {about['largest']:,}", flush=True)
                write_rows(rows, given.json)
    print("\n".join(verdicts(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
