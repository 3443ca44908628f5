"""What the drills share: counting, one JSON file per figure, sweeps in processes of their own, and
comparing results."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
CACHE = Path(tempfile.gettempdir()) / "cfljax-drills"
"""Compiled programs that the drills' processes share; some of them are killed while they write
here."""
SHOWN = 20
"""Failures that a results file quotes."""
HANGS = 240
"""Seconds after which a process is taken to hang."""
SPEC = """name = "drill"
data = { name = "blobs", samples = 400, features = 6, classes = 4, partition = "label_permutation", groups = 2, clients = 8 }
model = { name = "mclr" }
train = { rounds = 60, participation = 4, lr = 0.1, batch = 5 }
seeds = "0:2"
method = ["fedavg", { name = "ifca", clusters = 2 }]
"""
"""Four runs, two programs; a second or two each once they are compiled."""


class Figure(NamedTuple):
    """A line of the table in docs/reliability.md."""

    name: str
    """Its module."""
    number: str
    what: str
    bar: str
    count: int
    """How many are tried by default."""


class Tally:
    """Counts what was tried and keeps what failed, the worst of each measured quantity, and other
    facts."""

    def __init__(self) -> None:
        self.tried = 0
        self.failures: list[str] = []
        self.worst: dict[str, float] = {}
        self.facts: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.end = np.inf

    def trials(self, count: int) -> Iterator[int]:
        """0 … count − 1, or fewer when the time that `--seconds` gives is over."""
        for number in range(count):
            if time.monotonic() > self.end:
                return
            yield number

    def check(self, problem: str | list[str] | None) -> None:
        """One trial; `problem`: what was wrong, or nothing."""
        self.tried += 1
        if problem:
            text = problem if isinstance(problem, str) else "; ".join(problem)
            self.failures.append(text)
            print(f"FAILED {text}", file=sys.stderr, flush=True)

    def most(self, name: str, value: float) -> None:
        """Keep the largest value of that name."""
        self.worst[name] = max(self.worst.get(name, -np.inf), float(value))

    def count(self, name: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[name] = self.counts.get(name, 0) + number


Drill = Callable[[Tally, int, int], None]
"""(tally, count, seed): tries `count` things and tells the tally."""


def main(figure: Figure, drill: Drill, arguments: list[str] | None = None) -> int:
    """Run a drill from the command line and keep its figures in drills/results."""
    made = argparse.ArgumentParser(
        f"python -m drills.{figure.name}", description=f"{figure.what}. Bar: {figure.bar}."
    )
    made.add_argument(
        "--count", type=int, default=figure.count, help=f"how many to try (default {figure.count})"
    )
    made.add_argument("--seed", type=int, default=0, help="of all that is drawn at random")
    made.add_argument(
        "--seconds", type=float, default=np.inf, help="begin no trial later than this"
    )
    made.add_argument(
        "--add", action="store_true", help="add to the figures that are there, as for another seed"
    )
    made.add_argument(
        "--json", type=Path, default=RESULTS / f"{figure.name}.json", help="where the figures go"
    )
    flags = made.parse_args(arguments)
    begin, tally = time.perf_counter(), Tally()
    tally.end = time.monotonic() + flags.seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early; what has been tried is kept"))
    try:
        drill(tally, flags.count, flags.seed)
    except SystemExit as told:
        print(told, file=sys.stderr)
        for pid in children(os.getpid()):
            os.kill(pid, signal.SIGKILL)
    if not tally.tried:
        return 1
    line = f"python -m drills.{figure.name} --count {flags.count} --seed {flags.seed}"
    line += f" --seconds {flags.seconds:g}" if np.isfinite(flags.seconds) else ""
    write(figure, tally, line, flags.json, flags.add, begin)
    return 1 if tally.failures else 0


def write(figure: Figure, tally: Tally, line: str, path: Path, add: bool, begin: float) -> None:
    """Keep the figures that the command `line` has measured since `begin`."""
    found: dict[str, Any] = {
        "figure": figure.number,
        "what": figure.what,
        "bar": figure.bar,
        "command": line,
        "tried": tally.tried,
        "failed": len(tally.failures),
        "failures": tally.failures[:SHOWN],
        "worst": tally.worst,
        "counts": tally.counts,
        **tally.facts,
        "seconds": round(time.perf_counter() - begin, 1),
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "machine": machine(),
    }
    earlier = json.loads(path.read_text()) if add and path.exists() else None
    found = _joined(earlier, found) if earlier else found
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, default=str) + "\n")
    print(
        f"{figure.name}: {tally.tried} tried, {len(tally.failures)} failed; {tally.worst} "
        f"{tally.counts}",
        flush=True,
    )


def _joined(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The figures of two starts as one."""
    names = {**a["worst"], **b["worst"]}
    return b | {
        "command": a["command"]
        if a["command"] == b["command"]
        else f"{a['command']}; {b['command']} --add",
        "tried": a["tried"] + b["tried"],
        "failed": a["failed"] + b["failed"],
        "failures": (a["failures"] + b["failures"])[:SHOWN],
        "worst": {
            name: max(a["worst"].get(name, -np.inf), b["worst"].get(name, -np.inf))
            for name in names
        },
        "counts": {
            name: a["counts"].get(name, 0) + b["counts"].get(name, 0)
            for name in {**a["counts"], **b["counts"]}
        },
        "seconds": round(a["seconds"] + b["seconds"], 1),
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import jax

    model = [line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "processor": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()


def memory_limit(mib: int) -> str:
    """libFuzzer's flag for this number of MiB. It looks at the most that the process ever had, and
    Linux begins to count that at what the process had that started it."""
    return f"-rss_limit_mb={mib + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}"


class Clock:
    """Seconds that stand still while this process is stopped, as it is on a machine where others
    take their timings."""

    TICK, LONGEST = 0.05, 1.0

    def __init__(self) -> None:
        self.seconds = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(self.TICK)
            now = time.monotonic()
            self.seconds += min(now - before, self.LONGEST)
            before = now


@functools.cache
def clock() -> Clock:
    """The one of this process."""
    return Clock()


# --- sweeps in processes of their own
# ------------------------------------------------------------------------------------


@contextmanager
def workplace() -> Iterator[Path]:
    """A temporary folder with the spec `spec.toml`."""
    with tempfile.TemporaryDirectory(prefix="cfljax-drill-") as name:
        place = Path(name)
        (place / "spec.toml").write_text(SPEC)
        yield place


def environment(**more: str) -> dict[str, str]:
    """For a process that runs this checkout. A checkpoint at every chance, so that short runs have
    some."""
    plain = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "CFLJAX_DEBUG")}
    own = {
        "PYTHONPATH": str(ROOT),
        "CFLJAX_CACHE": str(CACHE),
        "JAX_PLATFORMS": "cpu",
        "CFLJAX_CHECKPOINT": "0",
    }
    return plain | own | more


def command(place: Path, folder: Path, *flags: str) -> list[str]:
    """The command line of a sweep of the place's spec."""
    fixed = ["--no-report", "--quiet"]
    return [
        sys.executable,
        "-m",
        "cfljax.sweep",
        str(place / "spec.toml"),
        "--out",
        str(folder),
        *fixed,
        *flags,
    ]


def start(place: Path, folder: Path, *flags: str, **more: str) -> subprocess.Popen[str]:
    """A sweep, started, in a process group of its own."""
    return subprocess.Popen(
        command(place, folder, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
        cwd=ROOT,
        start_new_session=True,
    )


def sweep(place: Path, folder: Path, *flags: str, **more: str) -> tuple[int, str, str]:
    """(exit code, output, errors) of a sweep."""
    process, begin = start(place, folder, *flags, PYTHONFAULTHANDLER="1", **more), clock().seconds
    try:
        while True:
            try:
                out, errors = process.communicate(timeout=5)
                return process.returncode, out, errors
            except subprocess.TimeoutExpired:
                if clock().seconds - begin > HANGS:
                    process.send_signal(signal.SIGABRT)  # says where it stands
                    out, errors = process.communicate()
                    print(f"hangs after {HANGS} s: {errors}", file=sys.stderr)
                    return process.returncode, out, errors
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the process and what it has started, if it still runs."""
    family = [process.pid, *children(process.pid)]
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()


def children(pid: int) -> list[int]:
    """The processes that it has started."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def uninterrupted(place: Path, name: str, *flags: str) -> tuple[float, dict[str, dict[str, bytes]]]:
    """(seconds that a sweep with compiled programs takes, its contents); its folder is
    place/name."""
    sweep(place, place / name, *flags)  # compiles
    shutil.rmtree(place / name)
    begin = clock().seconds
    code, _, errors = sweep(place, place / name, *flags)
    assert code == 0, errors
    return clock().seconds - begin, contents(place / name)


# --- what is in a results folder
# -----------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, dict[str, bytes]]:
    """Unit → array → dtype, shape and bytes."""
    from cfljax.store import Store

    store = Store(folder, read_only=True)
    units = {name: store.read(name) for name in store.ids()}
    return {
        name: {key: f"{a.dtype}{a.shape}".encode() + a.tobytes() for key, a in unit.arrays.items()}
        for name, unit in units.items()
    }


def differences(
    wanted: dict[str, dict[str, bytes]], found: dict[str, dict[str, bytes]]
) -> list[str]:
    """What is not the same, bit for bit."""
    problems = [f"unit {name} is missing" for name in wanted.keys() - found.keys()]
    problems += [f"unit {name} should not be there" for name in found.keys() - wanted.keys()]
    for name in wanted.keys() & found.keys():
        if wanted[name].keys() != found[name].keys():
            problems.append(f"unit {name} has other arrays")
        both = wanted[name].keys() & found[name].keys()
        problems += [
            f"{name}/{key} differs" for key in both if wanted[name][key] != found[name][key]
        ]
    return problems


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """File of a finished unit → (inode, time of writing): redone work shows here."""
    found = {}
    for record in (folder / "units").glob("*.json"):
        for path in (record, record.with_suffix(".npz")):
            info = path.stat()
            found[path.name] = (info.st_ino, info.st_mtime_ns)
    return found


def events(folder: Path) -> list[dict[str, Any]]:
    """The lines of log.jsonl; a last line that a killed process has not finished is left out."""
    path, found = folder / "log.jsonl", []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def leftovers(folder: Path) -> list[str]:
    """Temporary files."""
    return [str(p.relative_to(folder)) for p in folder.rglob("*") if p.name.endswith(".cfljax-tmp")]


def complaint(errors: str) -> list[str]:
    """What is wrong with the message of a command that failed: it has to be one line, and no
    traceback."""
    lines = errors.strip().splitlines()
    problems = [] if len(lines) == 1 else [f"{len(lines)} lines on standard error"]
    return problems + ([f"a traceback: {errors.strip()[-600:]}"] if "Traceback" in errors else [])
