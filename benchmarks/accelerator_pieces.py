"""One piece of `benchmarks.accelerator`, in a process of its own.

    python -m benchmarks.accelerator_pieces JSON        # the fields of `Given`

A piece yields rows; each is written to the JSON list `out` as soon as it is measured, so that a
piece that is ended keeps what it has. `folder` has stand-ins of data sets and the arrays that peers
share.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import profiles
from benchmarks.accelerator import FLAGS, GRACE, MORE, PIECES, ROOT, judge
from benchmarks.inside import carry_out, schedule, use_all_cores
from benchmarks.judge import work
from benchmarks.machine import best
from benchmarks.measure import write_rows
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
_IMAGES = {"name": "cifar10", "partition": "rotated", "groups": 2, "clients": 200}
RESNET18 = {
    "R18": Workload(
        "FedAvg, ResNet-18 with batch normalisation on CIFAR-10, upright and upside down: 200 "
        "clients of 100, 20 per round, 1 epoch, batch 50",
        _IMAGES | {"samples_per_client": 100},
        {"name": "resnet18", "norm": "batch"},
        {"name": "fedavg"},
        {"participation": 20, "epochs": 1, "batch": 50, "lr": 0.05},
        0.05,
    )
}
ALL = WORKLOADS | QUICKSTART | RESNET18
WIDE = {"W1": (256,), "W2": (256,)}
"""Runs side by side that have an aim; others: 1 and 16."""
WIDTHS = {
    "W1": (1, 16, 64, 256),
    "W2": (1, 16, 64, 256),
    "Q": (1, 16, 64, 256),
    "QI": (1, 16, 64, 256),
    "W4": (1, 16, 64),
}
ROUNDS = {"W1": 5, "W2": 4, "Q": 20, "QI": 20, "W4": 4, "W3": 3, "W5": 1, "R18": 1}
"""Rounds of a timed chunk."""
TABLE = (32, 100)
"""Seeds and rounds of the published table. (It has 300 rounds; so many would take all the time.)"""
PROFILED = 40.0
"""Seconds that a piece must have left to trace what misses its aim by a program of its own."""
PROCESSES = 16
"""Processes of plain PyTorch that share a device."""
PATIENCE = 600.0
"""Seconds after which a peer that says nothing is given up: the piece is ended before."""


class Given(NamedTuple):
    """What a piece is asked for."""

    name: str
    folder: Path  # For data and temporary files
    out: Path  # Where the rows go
    keep: Path  # A folder for what is to last: sweeps of the evidence
    small: bool  # Whether sizes are small
    reference: bool  # Whether a CPU is measured for others to be compared with
    seconds: float  # Its time, of which it should leave some

    @property
    def of(self) -> str:
        """What the piece measures: the part of its name behind its kind."""
        return self.name.partition("-")[2]


class Timed(NamedTuple):
    """Rounds of runs side by side."""

    seconds: float  # Of a round of all runs
    compiling: float
    outputs: list[Any]
    profile: Row | None


def describe() -> Row:
    """Return the device and the versions."""
    import jax

    from cfljax.store import provenance

    said = provenance()
    return {
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "versions": said["versions"],
        "git": said["git"],
    }


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


def time_rounds(
    runs: list[Any],
    rounds: int,
    folder: Path | None = None,
    misses: Callable[[float], bool] = lambda _: False,
) -> Timed:
    """Time runs of four chunks side by side: the second is timed; the third is traced into
    `folder`, if `misses(seconds of a round)`; the fourth ends with an evaluation."""
    import jax

    at: dict[int, float] = {}
    traced = False

    def progress(done: int, _: Any) -> None:
        nonlocal traced
        at.setdefault(done, time.perf_counter())
        if done == 2 * rounds and folder is not None and misses((at[done] - at[rounds]) / rounds):
            jax.profiler.start_trace(str(folder))
            traced = True
        if done == 3 * rounds and traced:
            jax.profiler.stop_trace()

    _, outputs = carry_out(runs, chunk_rounds=rounds, progress=progress)
    return Timed(
        (at[2 * rounds] - at[rounds]) / rounds,
        sum(output.seconds.compile for output in outputs),
        outputs,
        profiles.read(folder) if traced and folder is not None else None,
    )


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


def wide(given: Given, widths: tuple[int, ...] = ()) -> Iterator[Row]:
    """Time runs side by side, the narrowest first, so that each peak of the memory belongs to its
    width. What does not fit is halved."""
    name = given.of
    workload = ALL["toy" if given.small and name not in QUICKSTART else name]
    data, words = data_folder(workload, given.folder)
    rounds = 2 if given.small else ROUNDS[name]
    peak, work_of_round = peak_flops(given.small), operations(workload, data, 4 * rounds)
    widths = widths or WIDE.get(name, (1, 16))
    for width in (1,) if given.reference else (1, 2) if given.small else widths:
        fits = False
        while not fits and width:
            try:
                yield measure_width(given, workload, data, width, rounds, peak, work_of_round) | {
                    "data": words
                }
                fits = True
            except Exception as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                yield {"name": name, "runs": width, "note": "out of memory"}
                width //= 2


def measure_width(
    given: Given,
    workload: Workload,
    data: Path | None,
    width: int,
    rounds: int,
    peak: float,
    work_of_round: float,
) -> Row:
    """Time `width` runs side by side, and trace them if they miss their aim."""

    def row(seconds: float) -> Row:
        return {
            "name": given.of,
            "runs": width,
            "ms_per_round": 1e3 * seconds,
            "ms_per_run_round": 1e3 * seconds / width,
            "share_of_peak": width * work_of_round / seconds / peak,
        }

    def misses(seconds: float) -> bool:
        aim = judge(row(seconds)).get("aim")
        return given.small or (aim is not None and not aim["met"])

    folder = None if given.reference else given.folder / f"trace-{given.of}-{width}"
    timed = time_rounds(runs_of(workload, 4 * rounds, data, width), rounds, folder, misses)
    found = {"compile_s": timed.compiling, "peak_flops": peak, **memory()}
    profile = {} if timed.profile is None else {"profile": timed.profile}
    return row(timed.seconds) | found | profile


def widths(given: Given) -> Iterator[Row]:
    """Time further numbers of runs side by side."""
    return wide(given, WIDTHS.get(given.of, ()))


def flags(given: Given) -> Iterator[Row]:
    """Time W1 alone and 64 times under the flags of the piece, which the process was started
    with."""
    rows = list(wide(given._replace(name="wide-Q" if given.small else "wide-W1"), (1, 64)))
    found = {
        f"ms_per_round_{row['runs']}": row["ms_per_round"] for row in rows if "ms_per_round" in row
    }
    yield {
        "name": given.of,
        "flags": FLAGS[given.of],
        **found,
        "compile_s": sum(row.get("compile_s", 0) for row in rows),
    }


def precision(given: Given) -> Iterator[Row]:
    """Compare precisions on eight seeds: time, and accuracies after fifty rounds."""
    name = given.of
    workload = ALL["Q" if given.small else name]
    data, words = data_folder(workload, given.folder)
    rounds, width = (2, 2) if given.small else ((13, 8) if name != "W3" else (6, 4))
    highest = np.zeros(width)
    for kind in ("highest", "high", "bfloat16"):
        timed = time_rounds(runs_of(workload, 4 * rounds, data, width, precision=kind), rounds)
        found = np.array([float(o.history["accuracy"][-1]) for o in timed.outputs])
        highest = found if kind == "highest" else highest
        yield {
            "name": name,
            "precision": kind,
            "runs": width,
            "rounds": 4 * rounds,
            "ms_per_round_all": 1e3 * timed.seconds,
            "accuracy": float(found.mean()),
            "mean_difference": float((found - highest).mean()),
            "largest_difference": float(np.abs(found - highest).max()),
            "data": words,
        }


def agreement(given: Given) -> Iterator[Row]:
    """Compare models after two rounds with the models of a CPU in another process."""
    code = (
        "import sys, numpy as np; from pathlib import Path; from benchmarks import "
        "accelerator_pieces as p; f = Path(sys.argv[1]); "
        "[np.save(f / ('cpu-' + n + '.npy'), p.models_after_two_rounds(n, f)) for n in "
        "sys.argv[2:]]"
    )
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    for name in ("Q",) if given.small else ("Q", "QI", "W1", "W3"):
        command = [sys.executable, "-c", code, str(given.folder), name]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        there = np.load(given.folder / f"cpu-{name}.npy", allow_pickle=False)
        here = models_after_two_rounds(name, given.folder)
        error = float(np.abs(here - there).max() / np.abs(there).max())
        yield {"name": name, "error": error, "holds": error < 1e-3}


def models_after_two_rounds(name: str, folder: Path) -> np.ndarray:
    """Return the models of one run."""
    data, _ = data_folder(ALL[name], folder)
    return carry_out(runs_of(ALL[name], 2, data, 1))[1][0].models


def sweep(given: Given, arguments: list[str], seconds: float) -> bool:
    """Run the sweep command; whether it ended by itself before these seconds were over. Otherwise
    it is ended, and leaves what it has done."""
    command = [sys.executable, "-m", "cfljax.sweep", *arguments, "--no-report", "--quiet"]
    environment = os.environ | {"CFLJAX_CACHE": str(given.folder / "cache")}
    child = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        code = child.wait(max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(2 * GRACE)
        child.kill()
        child.wait()
        return False
    except BaseException:  # this process is ended: its group has the signal, too
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.8 * GRACE)
        raise
    if code:
        raise RuntimeError(f"cfljax.sweep {arguments[0]} ended with exit code {code}")
    return True


def sets(**values: str) -> list[str]:
    """Return `--set` arguments; `__` in a name is a dot."""
    flags = (f"{name.replace('__', '.')}={value}" for name, value in values.items())
    return [word for flag in flags for word in ("--set", flag)]


def table(given: Given) -> Iterator[Row]:
    """Time the row MNIST-MCLR of FedGroup's Table 3 by the sweep command: first a few rounds, which
    fill a cache of compiled programs, then all."""
    import cfljax
    from benchmarks.table3 import row_of_the_table

    begin = time.perf_counter()
    data, words = data_folder(WORKLOADS["W1"], given.folder)
    spec = row_of_the_table(given.folder)
    number, rounds = (1, 300) if given.reference else (2, 3) if given.small else TABLE
    small = ['method=["fedavg","ifca"]', 'data={name="digits",partition="iid",clients=8}']
    more = [word for flag in small for word in ("--set", flag)] if given.small else []
    more += sets(seeds=f"0:{number}", **({"train__participation": "4"} if given.small else {}))
    os.environ["CFLJAX_DATA"] = str(data)
    spent = []
    for many in (2, rounds):
        out = given.folder / f"table-{many}"
        at = time.perf_counter()
        words_of = [str(spec), "--out", str(out), *more, *sets(train__rounds=str(many))]
        left = given.seconds - (at - begin) - 3 * GRACE
        if not sweep(given, words_of, left):
            raise TimeoutError(f"not done after {given.seconds:.0f} s, in the sweep of {many}")
        spent.append(time.perf_counter() - at)
    frame = cfljax.load(out).to_pandas()
    of_label = frame.groupby("label" if "label" in frame else "method")
    training = of_label["seconds_train"].sum()
    row: Row = {
        "name": "table",
        "runs": len(frame),
        "seeds": number,
        "rounds": rounds,
        "fill_s": spent[0],
        "second_start_s": spent[1],
        "ms_per_run_round": 1e3 * spent[1] / len(frame) / rounds,
        "seconds_train": training.round(2).to_dict(),
        "seconds_compile": of_label["seconds_compile"].sum().round(2).to_dict(),
        "accuracy_max": of_label["accuracy_max"].mean().round(4).to_dict(),
        "data": words,
    }
    yield row
    aim = judge(row).get("aim")
    left = given.seconds - (time.perf_counter() - begin)
    if given.small or (aim is not None and not aim["met"] and left > PROFILED):
        yield profile_of(given, [str(spec), *more], str(training.idxmax()))


def profile_of(given: Given, arguments: list[str], label: str) -> Row:
    """Trace the method of a spec that has this label."""
    from cfljax.config import read_spec

    flags = [word for word in arguments[1:] if word != "--set"]
    spec = read_spec(Path(arguments[0]), [*flags, "train.rounds=16", "train.eval_every=16"])
    runs = [run for run in spec.runs() if run.label == label]
    timed = time_rounds(runs, 4, given.folder / "trace-table", lambda _: True)
    seconds = {"ms_per_round": 1e3 * timed.seconds, "profile": timed.profile}
    return {"name": f"table, {label}", "runs": len(runs), **seconds}


def board(given: Given) -> Iterator[Row]:
    """Run all methods of the board with a CNN, five seeds each, for as long as there is time."""
    import cfljax
    from cfljax.registry.options import show
    from cfljax.store import counts
    from experiments.board.space import read_tiers

    data, words = data_folder(ALL["toy" if given.small else "W3"], given.folder)
    if data is not None:
        os.environ["CFLJAX_DATA"] = str(data)
    images = (
        {"name": "digits", "clients": 8}
        if given.small
        else {"name": "cifar10", "normalise": "pixel", "clients": 20, "samples_per_client": 100}
    )
    clients = images["clients"]
    options = read_tiers()["one"]["method"]
    # The CNN has no layers of normalisation
    names = ["fedavg", "ditto"] if given.small else [name for name in options if name != "fedbn"]
    methods = [
        {"name": name}
        | {key: clients if of == "clients" else of for key, of in options[name].items()}
        for name in names
    ]
    tables = {
        "name": "board",
        "seeds": "0:1" if given.small else "0:5",
        "data": images | {"partition": "rotated", "groups": 4, "validation": 0.1},
        "model": {"name": "mclr" if given.small else "cnn"},
        "train": {"rounds": 2 if given.small else 30, "epochs": 2, "batch": 10, "lr": 0.05},
        "defaults": {"clusters": 4},
        "method": methods,
    }
    tables["train"] |= {"eval_every": 5, "clock": {"step_ms": 5, "down_mbps": 20, "up_mbps": 5}}
    spec = given.folder / "board.toml"
    spec.write_text("".join(f"{key} = {show(table)}\n" for key, table in tables.items()))
    out, begin = given.folder / "board", time.perf_counter()
    whole = sweep(given, [str(spec), "--out", str(out)], given.seconds - 25.0)
    spent, number = time.perf_counter() - begin, counts(out)
    frame = cfljax.load(out).to_pandas() if number["done"] else None
    yield {
        "name": "board",
        "runs": number["planned"],
        "done": number["done"],
        "methods_done": 0 if frame is None else int(frame["method"].nunique()),
        "whole": whole,
        "seconds": spent,
        "seconds_train": 0.0 if frame is None else float(frame["seconds_train"].sum()),
        "seconds_compile": 0.0 if frame is None else float(frame["seconds_compile"].sum()),
        "data": words,
    }


def peer(given: Given) -> Iterator[Row]:
    """Time another simulator on the same participants: `WORKLOAD-SYSTEM`."""
    workload, _, system = given.of.partition("-")
    package = "torch" if system.startswith("torch") else "fedjax"
    if importlib.util.find_spec(package) is None:
        yield {"name": workload, "system": system, "skipped": f"{package} is not installed"}
        return
    workload = "Q" if given.small else workload
    data, words = data_folder(ALL[workload], given.folder)
    turns, turn = (2, 1) if given.small else (4, 2)
    file = given.folder / f"{workload}.npz"
    if not file.is_file():
        share_arrays(workload, file, turns * turn, data, turn)
    many = 1
    if system == "torch-16":
        many = 2 if given.small else PROCESSES
    program = ["fedjax_peer.py"] if package == "fedjax" else ["torch_gpu.py"]
    if system == "torch-vmap":
        program.append("--vmap")
    about, seconds = time_peers(program, file, given.folder, many, turns)
    yield {
        "name": workload,
        "system": system,
        "runs": many,
        "ms_per_round": 1e3 * seconds / turn,
        "ms_per_run_round": 1e3 * seconds / turn / many,
        "version": about["version"],
        "data": words,
    }


def share_arrays(workload: str, file: Path, rounds: int, data: Path | None, turn: int) -> None:
    """Write what all systems share, by a process without an accelerator."""
    code = (
        "import sys, json, numpy as np; from pathlib import Path; from benchmarks import "
        "accelerator_pieces as p, shared; name, file, rounds, data, turn = json.loads(sys.argv[1]);"
        "np.savez(file, **shared.contents(p.ALL[name], rounds, data and Path(data), turn))"
    )
    words = json.dumps([workload, str(file), rounds, data and str(data), turn])
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code, words], cwd=ROOT, env=environment, check=True)


def time_peers(
    program: list[str], file: Path, folder: Path, many: int, turns: int
) -> tuple[Row, float]:
    """Return (what a peer says of itself, seconds of the fastest turn): that many processes of it
    take each turn at the same time, and a turn lasts until the last has ended it."""
    path = str(ROOT / "benchmarks" / "peers" / program[0])
    children = [
        subprocess.Popen(
            [sys.executable, path, str(file), str(folder / f"models-{k}.npz"), *program[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for k in range(many)
    ]
    try:
        about = [hear(child, "ready") for child in children][0]
        spent = []
        for _ in range(turns):
            begin = time.perf_counter()
            for child in children:
                assert child.stdin is not None
                child.stdin.write(b"go\n")
                child.stdin.flush()
            for child in children:
                hear(child, "seconds")
            spent.append(time.perf_counter() - begin)
        return about, min(spent)
    finally:
        for child in children:
            child.kill()
            child.wait()


def hear(child: subprocess.Popen[bytes], wanted: str) -> Any:
    """Return the answer of that name: the next line of JSON that a process writes."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if not selector.select(PATIENCE):
            raise TimeoutError(f"silent for {PATIENCE:.0f} s")
    line = child.stdout.readline()
    if not line:
        raise RuntimeError(f"a process ended before it said {wanted}")
    return json.loads(line)[wanted]


def evidence(given: Given) -> Iterator[Row]:
    """Run sweeps of experiments/todo.toml, most claims per minute of a card first, and export each
    that is done as a record. What is cut off goes on with the next start."""
    from cfljax.store import counts
    from experiments import todo

    begin = time.perf_counter()
    if not given.small and not os.environ.get("CFLJAX_DATA"):
        yield {"name": "evidence", "skipped": "it needs real data: give --data FOLDER"}
        return
    jobs = [small_job(given.folder)] if given.small else todo.order_for_card(*todo.jobs())
    for job in jobs:
        record = given.keep / "records" / job.name
        if record.is_dir() or job.state() == "done":
            continue
        left = given.seconds - (time.perf_counter() - begin) - 5 * GRACE
        if left < 2 * GRACE:
            yield {"name": job.name, "left": "no time"}
            return
        out, at = given.keep / "results" / job.name, time.perf_counter()
        row: Row = {"name": job.name, "claims": job.value, "runs": job.runs}
        try:
            whole = sweep(given, todo.command(job, out)[3:], left)
        except RuntimeError as error:
            yield row | {"skipped": str(error)}
            continue
        if whole:
            subprocess.run(todo.export(out, record), cwd=ROOT, check=True)
        done = counts(out)["done"] if (out / "plan.json").is_file() else 0
        row |= {"done": done, "seconds": time.perf_counter() - at}
        yield row | ({"record": str(record)} if whole else {"left": "the next start goes on"})


def small_job(folder: Path) -> Any:
    """Return a job of seconds."""
    from experiments import todo

    spec = folder / "small.toml"
    spec.write_text(
        'name = "small"\nseeds = [0]\nmethod = ["fedavg"]\n'
        'data = { name = "digits", partition = "iid", clients = 4 }\n'
        'model = { name = "mclr" }\ntrain = { rounds = 2 }\n'
    )
    return todo.Job("small", spec, [], 1, 0.01, True, 1)


KINDS: dict[str, Callable[[Given], Iterator[Row]]] = {
    "agreement": agreement,
    "board": board,
    "evidence": evidence,
    "flags": flags,
    "peer": peer,
    "precision": precision,
    "table": table,
    "wide": wide,
    "widths": widths,
}
OTHERS = ("table", "board", "peer", "evidence")
"""Kinds whose device is another process's."""


def main() -> int:
    """Measure the piece."""
    asked = json.loads(sys.argv[1])
    paths = {name: Path(asked[name]) for name in ("folder", "out", "keep")}
    given, rows = Given(**asked | paths), []
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    kind = (PIECES | MORE)[given.name].kind
    facts: Row = {"small": True} if given.small else {}
    try:
        if given.reference:
            use_all_cores()
        if kind not in OTHERS:
            from cfljax.files import use_compilation_cache

            use_compilation_cache()
            facts |= describe()
            if facts["backend"] == "cpu" and not (given.small or given.reference):
                raise RuntimeError("no accelerator: JAX computes on a CPU; --small tries it there")
        for row in KINDS[kind](given):
            rows.append(facts | row)
            write_rows(rows, given.out)
    except Exception as error:  # of many kinds: XLA's, JAX's, a peer's
        traceback.print_exception(error)
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        write_rows([*rows, {"name": given.of or given.name, "reason": words}], given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
