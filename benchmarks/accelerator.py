"""On an accelerator: W1 to W4, a sweep of 32 seeds x 8 learning rates of IFCA on W4's data, the kernels, and the device's
measured peaks, in one JSON with the device's name.

    python -m benchmarks.accelerator --json benchmarks/results/DEVICE.json
    python -m benchmarks.accelerator --tiny        # the same on small sizes, anywhere

First it looks whether one kernel per client (`train.plan.kernel`) trains as XLA's kernels do; then each workload is measured both
ways. The file is written after each piece, and the same command again goes on with the pieces that the file has not from this
device. `--only` takes a piece; none of them should take ten minutes.

To hold: W4 at 30 % of the measured float32 matrix peak (TF32 off), 256 runs in under 20 times the time of one.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.inside import carry_out, machine, peak_rss_mib, schedule, time_rounds
from benchmarks.judge import work
from benchmarks.machine import best, describe
from benchmarks.measure import row, timed, write_rows
from benchmarks.shared import data_folder, flat_names
from benchmarks.workloads import WORKLOADS, Workload


class Size(NamedTuple):
    """How much is done."""

    workloads: tuple[str, ...]
    rounds: int
    seeds: int
    rates: int
    sweep: str
    """The workload whose data and method the sweep has."""
    matrix: int
    copied: int


FULL = Size(("W1", "W2", "W3", "W4"), 12, 32, 8, "W4", 8192, 1 << 28)
TINY = Size(("toy",), 2, 2, 2, "toy", 256, 1 << 16)


def peaks(size: Size) -> dict[str, Any]:
    """Matrix products in float32 (no TF32), in TF32 or whatever "default" is, and in bfloat16; and copying, on the device."""
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    a, b = (jax.random.normal(jax.random.fold_in(key, i), (size.matrix,) * 2) for i in range(2))
    found: dict[str, Any] = {}
    for name, precision, dtype in (
        ("flops", "highest", jnp.float32), ("default_flops", "default", jnp.float32), ("bfloat16_flops", "default", jnp.bfloat16)
    ):  # fmt: skip
        with jax.default_matmul_precision(precision):
            product = jax.jit(jnp.matmul)
            x, y = a.astype(dtype), b.astype(dtype)
            found[name] = 2 * size.matrix**3 / best(lambda: product(x, y).block_until_ready())  # noqa: B023
    z = jnp.zeros(size.copied, jnp.float32)
    add = jax.jit(lambda v: v + 1)
    found["copy_bytes_per_s"] = 2 * z.nbytes / best(lambda: add(z).block_until_ready())
    return found | describe() | {"kind": jax.devices()[0].device_kind, "devices": len(jax.devices())}


def operations_of(workload: Workload, place: Path | None, rounds: int) -> list[float]:
    """Real operations of each round."""
    from cfljax.config import read_spec
    from cfljax.experiment import assemble

    table = workload.spec(rounds, place)
    run = read_spec(table).runs()[0]
    federation = assemble.host_federation(run)
    model = assemble.model_of(run, assemble.federation_of(run))
    clusters = workload.method.get("clusters", 1)
    named = flat_names(model, np.zeros((clusters, model.size), np.float32))
    settings = workload.train | {"image": federation.pool.x.shape[1:]}
    arrays = {f"init/{name}": value for name, value in named.items()}
    arrays |= {"schedule": schedule(table, rounds), "count": np.asarray(federation.train.count), "settings": json.dumps(settings)}
    return [one["operations"] for one in work(arrays, workload.method["name"] == "ifca")]


def agreement(peak: dict[str, Any], folder: Path) -> dict[str, Any]:
    """How far apart models are after two rounds by one kernel per client and by XLA's kernels, as a share of the largest number; a
    small workload. On a CPU the kernel is interpreted."""
    from cfljax.config import read_spec

    workload, outputs = WORKLOADS["toy"], []
    for kernel in ("xla", "pallas"):
        table = workload.spec(2, data_folder(workload, folder)[0])
        table["train"]["plan"] = {"kernel": kernel}
        parts, (output,) = carry_out(read_spec(table).runs())
        outputs.append(output.models)
    error = float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[0]).max())
    about = {"machine": peak, "one_kernel": parts.plan.kernel is not None, "error": error, "bar": 1e-4, "holds": error < 1e-4}
    return row("agreement", "cfljax", about)


def measure(name: str, size: Size, peak: dict[str, Any], folder: Path, kernel: str = "auto") -> list[dict[str, Any]]:
    """A workload's row and its floor. `kernel`: `train.plan.kernel`."""
    workload = WORKLOADS[name]
    place, words = data_folder(workload, folder)
    table = workload.spec(size.rounds + 2, place)
    table["train"]["plan"] = {"kernel": kernel}
    found = time_rounds(table)
    real = operations_of(workload, place, size.rounds + 2)[1:-1]
    used = float(np.median([o / s for o, s in zip(real, found.seconds, strict=True)])) / peak["flops"]
    about = {"data": words, "machine": peak, "share_of_peak": used, "kernel": kernel}
    figures = {
        "compile_s": found.output.seconds.compile, "peak_rss_mib": peak_rss_mib(),
        "accuracy": float(found.output.history["accuracy"][-1]),
    }  # fmt: skip
    floor = timed(name, "floor", [o / peak["flops"] for o in real], {"machine": peak})
    system = "cfljax" if kernel == "auto" else f"cfljax-{kernel}"
    return [timed(name, system, found.seconds, about | _memory(), **figures), floor]


def kept(file: Path | None, kind: str) -> list[dict[str, Any]]:
    """The rows that the file has of this kind of device."""
    if file is None or not file.is_file():
        return []
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [each for each in rows if each["about"].get("machine", {}).get("kind") == kind]


def _memory() -> dict[str, Any]:
    """The device's peak memory, where it tells."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return {"device_peak_mib": stats["peak_bytes_in_use"] / 2**20} if "peak_bytes_in_use" in stats else {}


def sweep(size: Size, peak: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Seeds x learning rates side by side against one run alone: seconds per round of all of them."""
    workload = WORKLOADS[size.sweep]
    place, words = data_folder(workload, folder)
    table = workload.spec(size.rounds, place)
    table["train"]["lr"] = [round(float(lr), 4) for lr in np.geomspace(0.02, 0.2, size.rates)]
    table["seeds"] = list(range(size.seeds))
    alone, _, _ = _batches(table, first_only=True)
    seconds, width, compiled = _batches(table)
    ratio, runs = seconds / alone, size.seeds * size.rates
    about = {
        "machine": peak,
        "data": words,
        "runs": runs,
        "side_by_side": width,
        "one_run_s": alone,
        "ratio": ratio,
        "bar": 20,
        "holds": ratio < 20,
    }
    name = f"{workload.method['name']}-{size.seeds}-seeds-{size.rates}-rates"
    return row(name, "cfljax", about | _memory(), median_s=seconds, min_s=seconds, max_s=seconds, compile_s=compiled)


def _batches(table: dict[str, Any], first_only: bool = False) -> tuple[float, int, float]:
    """(seconds per round of all runs, the evaluations included, runs side by side, seconds of compiling) in the batches that a
    sweep would make. Training alone is known by difference only, which is noise in a run of milliseconds."""
    from cfljax.config import read_spec
    from cfljax.experiment.batching import batches
    from cfljax.launch.plan_file import batch_limit

    runs = read_spec(table).runs()
    made = batches(runs[:1], 1) if first_only else batches(runs, functools.partial(batch_limit, machine=machine()))
    seconds = compiled = 0.0
    for batch in made:
        _, outputs = carry_out(list(batch.runs), batch.width)
        compiled += sum(o.seconds.compile for o in outputs)
        seconds += sum(o.seconds.train + o.seconds.eval for o in outputs)
    return seconds / table["train"]["rounds"], made[0].width, compiled


def kernels(file: Path) -> str:
    """`benchmarks.kernels` writes its own rows beside ours."""
    command = [sys.executable, "-m", "benchmarks.kernels", "--json", str(file)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return f"kernels: {file}"
    return f"kernels: not measured: {(ended.stderr.strip().splitlines() or ['failed'])[-1]}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small sizes, without kernels: does it run?")
    parser.add_argument("--only", default="", help="W1, …, sweep or kernels")
    given = parser.parse_args(arguments)
    size = TINY if given.tiny else FULL
    peak, begin = peaks(size), time.perf_counter()
    rows = kept(given.json, peak["kind"])
    done = {(each["workload"], each["system"]) for each in rows}
    ways = {"cfljax": "auto"} | ({} if peak["kind"] == "cpu" else {"cfljax-xla": "xla"})
    print(f"{peak['kind']}: {peak['flops'] / 1e12:.3g} TFLOP/s float32, {peak['copy_bytes_per_s'] / 1e9:.3g} GB/s", flush=True)
    with tempfile.TemporaryDirectory(prefix="cfljax-accelerator-") as folder:
        if given.only in ("", "agreement") and ("agreement", "cfljax") not in done:
            rows.append(agreement(peak, Path(folder)))
            print(f"one kernel per client: error {rows[-1]['about']['error']:.2g} beside XLA's kernels", flush=True)
            write_rows(rows, given.json)
        for name, (system, kernel) in itertools.product(size.workloads, ways.items()):
            if given.only in ("", name) and (name, system) not in done:
                rows += measure(name, size, peak, Path(folder), kernel)
                used, median = rows[-2]["about"]["share_of_peak"], rows[-2]["median_s"]
                print(f"{name}, {system}: {1000 * median:.3g} ms per round, {100 * used:.2g} % of the matrix peak", flush=True)
                write_rows(rows, given.json)
        if given.only in ("", "sweep") and not any("-seeds-" in workload for workload, _ in done):
            rows.append(sweep(size, peak, Path(folder)))
            about = rows[-1]["about"]
            width = about["side_by_side"]
            print(f"{about['runs']} runs in {about['ratio']:.3g} times the time of one, {width} side by side", flush=True)
    write_rows(rows, given.json)
    if given.only in ("", "kernels") and not given.tiny and given.json is not None:
        print(kernels(given.json.with_name(f"{given.json.stem}-kernels.json")))
    print(f"{time.perf_counter() - begin:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
