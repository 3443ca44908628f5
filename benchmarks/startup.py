"""Seconds to the first result, this version beside an earlier one: what a person waits for who types the first command.

    python -m benchmarks.startup --against 684e9dc --json FILE

Both versions are installed, each into an environment of its own with the same versions of all other packages, and each start
has caches and folders of its own. They take turns. "First" starts find an empty cache, "second" ones the cache that a first
one has filled, and a new results folder. All packages have been read once before, so that the disk is not what is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.markdown import markdown
from benchmarks.measure import timed, write_rows
from benchmarks.setup_peers import cache_folder

ROOT = Path(__file__).parents[1]
WARM = "import jax, numpy, scipy.stats, sklearn.cluster, pandas, flax, optax, matplotlib.pyplot, cfljax"
CHOSEN = ("JAX_", "XLA_", "CFLJAX_", "PYTHON", "MPL")
"""How the names of variables begin that change a start, and so are left out of its environment."""
COMMANDS = {
    "help": (["cfljax.sweep", "--help"],),
    "dry-run": (["cfljax.sweep", "--dry-run"],),
    "run": (["cfljax.run", "fedavg"],) * 2,
    "quickstart": (["cfljax.sweep", "--out", "{out}"],) * 2,
}
"""Name -> the command, once for each start: a second start finds the cache of the first."""


def install(commit: str | None, folder: Path, like: Path | None) -> Path:
    """Install a commit, or this checkout (None), into an environment; return its python. `like`: one with the same packages."""
    python = folder / "bin" / "python"
    if not python.exists():
        _done([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(prefix="cfljax-sources-") as place:
        source = ROOT
        if commit is not None:
            source = Path(place) / "source"
            _done(["git", "clone", "--quiet", str(ROOT), str(source)])
            _done(["git", "-C", str(source), "checkout", "--quiet", commit])
        if like is None:
            _done([*pip, str(source)])
        else:
            packages = Path(place) / "packages.txt"
            packages.write_text(_done([str(like), "-m", "pip", "freeze", "--exclude", "cfljax"]))
            _done([*pip, "--requirement", str(packages)])
        _done([*pip, "--no-deps", "--force-reinstall", str(source)])
    return python


def start(python: Path, words: list[str], folder: Path, cache: Path) -> float:
    """Return the seconds that a command takes, in a new folder."""
    place = Path(tempfile.mkdtemp(dir=folder))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(CHOSEN)}
    environment |= {"CFLJAX_CACHE": str(cache), "XDG_CACHE_HOME": str(folder / "other"), "JAX_PLATFORMS": "cpu"}
    begin = time.perf_counter()
    _done([str(python), *(word.format(out=place / "out") for word in words)], cwd=place, env=environment)
    return time.perf_counter() - begin


def measure(pythons: dict[str, Path], only: list[str], repeat: int, folder: Path) -> dict[tuple[str, str], list[float]]:
    """Return (command, version) -> seconds of its starts; the versions take turns, and who is first changes."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for name, python in pythons.items():
        start(python, ["-c", WARM], folder, folder / f"warm-{name}")
    for turn in range(repeat):
        for command in only:
            caches = {name: Path(tempfile.mkdtemp(dir=folder)) for name in pythons}
            for number, words in enumerate(COMMANDS[command]):
                what = f"{command}, {('first', 'second')[number]} start" if len(COMMANDS[command]) > 1 else command
                for name in list(pythons)[:: 1 if turn % 2 == 0 else -1]:
                    seconds.setdefault((what, name), []).append(start(pythons[name], ["-m", *words], folder, caches[name]))
    return seconds


def table(seconds: dict[tuple[str, str], list[float]]) -> str:
    """Return the medians, and this version's as a share of the other's, in Markdown."""
    this, other = dict.fromkeys(name for _, name in seconds)
    rows = []
    for what in dict.fromkeys(what for what, _ in seconds):
        ours, theirs = (statistics.median(seconds[what, name]) for name in (this, other))
        rows.append((what, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}"))
    return markdown(("seconds", this, other, "ratio"), rows)


def _done(command: list[str], **more: Any) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {(ended.stderr.strip().splitlines() or ['failed'])[-1][:300]}")
    return ended.stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="684e9dc", metavar="COMMIT", help="the version to compare with (%(default)s)")
    parser.add_argument("--only", default=",".join(COMMANDS), help="some commands, separated by commas (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each (%(default)s)")
    parser.add_argument("--environments", type=Path, default=cache_folder(), help="folder of the environments (%(default)s)")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    this = install(None, given.environments / "startup-this", None)
    other = install(given.against, given.environments / "startup-other", this)
    with tempfile.TemporaryDirectory(prefix="cfljax-startup-") as folder:
        found = measure({"this": this, given.against: other}, given.only.split(","), given.repeat, Path(folder))
    print(table(found))
    write_rows([timed(what, name, each, machine.describe()) for (what, name), each in found.items()], given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
