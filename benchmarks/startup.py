"""Seconds of first and second starts, of this version and an earlier one by turns.

    python -m benchmarks.startup --against a7ef2bbd --json FILE

Both run with the packages of this environment. A first start finds an empty cache folder, a second
one what the first has left. Processor time (of all cores) depends less on what else the machine
does than the time that a person waits.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.markdown import markdown
from benchmarks.measure import timed, write_rows

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "help": ["cfljax.sweep", "--help"],
    "dry-run": ["cfljax.sweep", "--dry-run"],
    "run": ["cfljax.run", "ifca", "--set", "train.rounds=5"],
    "quickstart": ["cfljax.sweep", "--out", "out"],
}
CHOSEN = ("JAX_", "XLA_", "CFLJAX_", "PYTHON", "MPL")
"""How the names of variables begin that change a start, and so are left out."""


def start(package: Path, words: list[str], cache: Path) -> tuple[float, float]:
    """Return the (processor seconds, seconds) that a command takes in a new folder, with the
    package of this folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CHOSEN)}
    own = kept | {"PYTHONPATH": str(package), "CFLJAX_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as where:
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", *words], cwd=where, env=own, check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        time.perf_counter() - begin,
    )


def measure(
    packages: dict[str, Path], only: list[str], repeat: int, folder: Path
) -> dict[tuple[str, str], list[float]]:
    """Return (what, version) -> seconds of each repetition."""
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(repeat):
        for command in only:
            for number in ("first", "second"):
                for name in list(packages)[:: 1 if turn % 2 == 0 else -1]:
                    seconds = start(
                        packages[name], COMMANDS[command], folder / f"{name} {command} {turn}"
                    )
                    for kind, value in zip(("processor", "wall"), seconds, strict=True):
                        found.setdefault((f"{command}, {number} start, {kind}", name), []).append(
                            value
                        )
    return found


def table(found: dict[tuple[str, str], list[float]]) -> str:
    """Return the medians, and this version's as a share of the other's, in Markdown."""
    this, other = dict.fromkeys(name for _, name in found)
    medians = {
        what: [statistics.median(found[what, name]) for name in (this, other)]
        for what in dict.fromkeys(w for w, _ in found)
    }
    return markdown(
        ("seconds", this, other, "ratio"),
        [(w, f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}") for w, (a, b) in medians.items()],
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against",
        default="a7ef2bbd",
        metavar="COMMIT",
        help="the version to compare with (%(default)s)",
    )
    parser.add_argument(
        "--only",
        default=",".join(COMMANDS),
        help="some commands, separated by commas (%(default)s)",
    )
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each (%(default)s)")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cfljax-startup-") as folder:
        other = Path(folder, "other")
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, other], check=True)
        subprocess.run(["git", "-C", other, "checkout", "--quiet", given.against], check=True)
        found = measure(
            {"this": ROOT, given.against: other}, given.only.split(","), given.repeat, Path(folder)
        )
    print(table(found))
    write_rows(
        [timed(what, name, each, machine.describe()) for (what, name), each in found.items()],
        given.json,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
