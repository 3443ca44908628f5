"""One piece of `benchmarks.accelerator`, in a process of its own.

    python -m benchmarks.accelerator_pieces NAME FOLDER OUT [--tiny]

Write a JSON list of rows to OUT. FOLDER keeps stand-ins of data sets and the arrays that peers
share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accelerator import FLAGS, PIECES, ROOT
from benchmarks.inside import carry_out, schedule
from benchmarks.judge import work
from benchmarks.machine import best
from benchmarks.shared import data_folder, flat_names
from benchmarks.workloads import WORKLOADS, Workload

Row = dict[str, Any]
QUICK_DATA = {"name": "digits", "partition": "rotated", "groups": 4, "clients": 40}
QUICK_TRAIN = {"epochs": 2, "batch": 10, "lr": 0.1}
QUICKSTART = {
    name: Workload(
        "the quickstart", QUICK_DATA, {"name": "mlp", "hidden": [64]}, method, QUICK_TRAIN, 0.05
    )
    for name, method in (("Q", {"name": "fedavg"}), ("QI", {"name": "ifca", "clusters": 4}))
}
ALL = WORKLOADS | QUICKSTART
WIDTHS = {
    "W1": (1, 16, 64, 256),
    "W2": (1, 16, 64, 256),
    "Q": (1, 16, 64, 256),
    "QI": (1, 16, 64, 256),
    "W4": (1, 16, 64),
}
"""Runs side by side; others: 1 and 8."""
ROUNDS = {"W1": 5, "W2": 4, "Q": 20, "QI": 20, "W4": 4, "W3": 3, "W5": 2}
"""Rounds of a timed chunk."""


def describe() -> Row:
    """Return the device and the versions."""
    import jax

    from cfljax.store import provenance

    return {"device": jax.devices()[0].device_kind, "versions": provenance()["versions"]}


def peak_flops(tiny: bool, precision: str = "highest") -> float:
    """Return the operations per second of a large float32 product."""
    import jax
    import jax.numpy as jnp

    side = 256 if tiny else 8192
    a = jax.random.normal(jax.random.key(0), (side, side), jnp.float32)
    with jax.default_matmul_precision(precision):
        product = jax.jit(jnp.matmul)
        return 2 * side**3 / best(lambda: product(a, a).block_until_ready(), 0.3)


def runs_of(
    workload: Workload, rounds: int, data: Path | None, width: int, **train: Any
) -> list[Any]:
    """Return `width` runs that differ in their seeds."""
    from cfljax.config import read_spec

    table = workload.spec(rounds, data)
    return read_spec(table | {"train": table["train"] | train, "seeds": list(range(width))}).runs()


def seconds_of_rounds(runs: list[Any], rounds: int) -> tuple[float, float, list[Any]]:
    """Return (seconds of a round of all runs side by side, seconds of compiling, outputs): the
    second of three chunks is timed."""
    at: dict[int, float] = {}
    _, outputs = carry_out(
        runs, chunk_rounds=rounds, progress=lambda done, _: at.setdefault(done, time.perf_counter())
    )
    return (at[2 * rounds] - at[rounds]) / rounds, sum(o.seconds.compile for o in outputs), outputs


def operations(workload: Workload, data: Path | None, rounds: int) -> float:
    """Return the mean floating-point operations of a round, without padding."""
    from cfljax.experiment import assemble

    table = workload.spec(rounds, data)
    run = runs_of(workload, rounds, data, 1)[0]
    federation = assemble.host_federation(run)
    model = assemble.model_of(run, federation)
    named = flat_names(
        model, np.zeros((workload.method.get("clusters", 1), model.size), np.float32)
    )
    settings = workload.train | {"image": federation.pool.x.shape[1:]}
    arrays: Row = {f"init/{name}": value for name, value in named.items()}
    arrays |= {
        "schedule": schedule(table, rounds),
        "count": np.asarray(federation.train.count),
        "settings": json.dumps(settings),
    }
    return float(
        np.mean([one["operations"] for one in work(arrays, workload.method["name"] == "ifca")])
    )


def memory() -> Row:
    """Return the peak memory of the device in this process, if the device says it."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return (
        {"device_peak_mib": stats["peak_bytes_in_use"] / 2**20}
        if "peak_bytes_in_use" in stats
        else {}
    )


def wide(name: str, folder: Path, tiny: bool, widths: tuple[int, ...] = ()) -> list[Row]:
    """Time runs side by side, the narrowest first, so that each peak of the memory belongs to its
    width."""
    workload = ALL["toy" if tiny and name not in QUICKSTART else name]
    data, words = data_folder(workload, folder)
    rounds = 2 if tiny else ROUNDS[name]
    peak, work_of_round, rows = peak_flops(tiny), operations(workload, data, 3 * rounds), []
    for width in widths or ((1, 2) if tiny else WIDTHS.get(name, (1, 8))):
        try:
            seconds, compiling, _ = seconds_of_rounds(
                runs_of(workload, 3 * rounds, data, width), rounds
            )
        except Exception as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            rows.append({"name": name, "runs": width, "reason": "out of memory"})
            break
        rows.append(
            {
                "name": name,
                "runs": width,
                "ms_per_round": 1e3 * seconds,
                "ms_per_run_round": 1e3 * seconds / width,
                "share_of_peak": width * work_of_round / seconds / peak,
                "compile_s": compiling,
                "peak_flops": peak,
                "data": words,
                **memory(),
            }
        )
    return rows


def flags(name: str, folder: Path, tiny: bool) -> list[Row]:
    """Time W1 alone and 64 times under the flags of the piece, which the process was started
    with."""
    rows = wide("Q" if tiny else "W1", folder, tiny, (1, 2) if tiny else (1, 64))
    found = {
        f"ms_per_round_{row['runs']}": row["ms_per_round"] for row in rows if "ms_per_round" in row
    }
    return [
        {
            "name": name,
            "flags": FLAGS[name],
            **found,
            "compile_s": sum(row.get("compile_s", 0) for row in rows),
        }
    ]


def precision(name: str, folder: Path, tiny: bool) -> list[Row]:
    """Compare precisions on eight seeds: time, and accuracies after fifty rounds."""
    workload = ALL["Q" if tiny else name]
    data, words = data_folder(workload, folder)
    rounds, width, rows = (2, 2, []) if tiny else ((17, 8, []) if name != "W3" else (8, 4, []))
    highest = np.zeros(width)
    for kind in ("highest", "high", "bfloat16"):
        seconds, _, outputs = seconds_of_rounds(
            runs_of(workload, 3 * rounds, data, width, precision=kind), rounds
        )
        found = np.array([float(o.history["accuracy"][-1]) for o in outputs])
        highest = found if kind == "highest" else highest
        rows.append(
            {
                "name": name,
                "precision": kind,
                "runs": width,
                "rounds": 3 * rounds,
                "ms_per_round_all": 1e3 * seconds,
                "accuracy": float(found.mean()),
                "mean_difference": float((found - highest).mean()),
                "largest_difference": float(np.abs(found - highest).max()),
                "data": words,
            }
        )
    return rows


def agreement(_: str, folder: Path, tiny: bool) -> list[Row]:
    """Compare models after two rounds with the models of a CPU in another process."""
    names = ("Q", "QI") if tiny else ("Q", "QI", "W1", "W3")
    code = (
        "import sys, numpy as np; from pathlib import Path; from benchmarks import "
        "accelerator_pieces as p; f = Path(sys.argv[1]); "
        "[np.save(f / ('cpu-' + n + '.npy'), p.models_after_two_rounds(n, f)) for n in "
        "sys.argv[2:]]"
    )
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [sys.executable, "-c", code, str(folder), *names], cwd=ROOT, env=environment, check=True
    )
    rows = []
    for name in names:
        there = np.load(folder / f"cpu-{name}.npy", allow_pickle=False)
        error = float(
            np.abs(models_after_two_rounds(name, folder) - there).max() / np.abs(there).max()
        )
        rows.append({"name": name, "error": error, "holds": error < 1e-3})
    return rows


def models_after_two_rounds(name: str, folder: Path) -> np.ndarray:
    """Return the models of one run."""
    data, _ = data_folder(ALL[name], folder)
    return carry_out(runs_of(ALL[name], 2, data, 1))[1][0].models


def table(_: str, folder: Path, tiny: bool) -> list[Row]:
    """Run the row MNIST-MCLR of FedGroup's Table 3 by the sweep command, 32 seeds, twice with one
    cache of compiled programs."""
    import cfljax
    from benchmarks.table3 import row_of_the_table

    data, words = data_folder(WORKLOADS["W1"], folder)
    spec, seeds, rounds = row_of_the_table(folder), 2 if tiny else 32, 1 if tiny else 300
    found: Row = {"name": "table", "seeds": seeds, "rounds": rounds, "data": words}
    for start in ("first", "second"):
        out = folder / f"table-{start}"
        command = [
            sys.executable,
            "-m",
            "cfljax.sweep",
            str(spec),
            "--out",
            str(out),
            "--set",
            f"seeds=0:{seeds}",
        ]
        environment = os.environ | {"CFLJAX_DATA": str(data), "CFLJAX_CACHE": str(folder / "cache")}
        begin = time.perf_counter()
        subprocess.run(
            [*command, "--set", f"train.rounds={rounds}"], cwd=ROOT, env=environment, check=True
        )
        found[f"{start}_start_s"] = time.perf_counter() - begin
    frame = cfljax.load(out).to_pandas()
    seconds = {
        c: frame.groupby("label")[c].sum().round(2).to_dict()
        for c in frame
        if c in ("seconds_train", "seconds_compile")
    }
    found |= {
        "runs": len(frame),
        "runs_per_minute": 60 * len(frame) / found["second_start_s"],
        **seconds,
    }
    return [
        found | {"accuracy_max": frame.groupby("label")["accuracy_max"].mean().round(4).to_dict()}
    ]


def peer(name: str, folder: Path, tiny: bool) -> list[Row]:
    """Time another simulator on the same participants: `WORKLOAD-SYSTEM`."""
    from benchmarks.shared import contents

    workload, _, system = name.partition("-")
    if tiny:
        workload = "Q"
    data, words = data_folder(ALL[workload], folder)
    turns, turn = (2, 1) if tiny else (4, 2)
    file = folder / f"{workload}.npz"
    if not file.is_file():
        np.savez(file, **contents(ALL[workload], turns * turn, data, turn))
    program = {
        "torch": ["torch_gpu.py"],
        "torch-vmap": ["torch_gpu.py", "--vmap"],
        "fedjax": ["fedjax_peer.py"],
    }[system]
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "peers" / program[0]),
        str(file),
        str(folder / "models.npz"),
        *program[1:],
    ]
    ended = subprocess.run(
        command, input="go\n" * turns, stdout=subprocess.PIPE, text=True, check=True
    )
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    seconds = [each["seconds"] for each in said if "seconds" in each]
    about = next(each["ready"] for each in said if "ready" in each)
    return [
        {
            "name": workload,
            "system": system,
            "ms_per_round": 1e3 * min(seconds),
            "version": about["version"],
            "data": words,
        }
    ]


def main() -> int:
    """Measure the piece."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    kinds = {
        "agreement": agreement,
        "wide": wide,
        "flags": flags,
        "table": table,
        "precision": precision,
        "peer": peer,
    }
    kind = PIECES[given.name]
    try:
        if kind not in ("table", "peer"):  # whose device is another process's
            from cfljax.files import use_compilation_cache

            use_compilation_cache()
            facts = describe()
        else:
            facts = {}
        rows = [
            facts | row
            for row in kinds[kind](given.name.partition("-")[2], given.folder, given.tiny)
        ]
    except Exception as error:  # of many kinds: XLA's, JAX's, a peer's
        traceback.print_exception(error)
        rows = [{"reason": " ".join(f"{type(error).__name__}: {error}".split())[:300]}]
    given.out.write_text(json.dumps(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
