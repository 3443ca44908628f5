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
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine, programs, startup_versions
from benchmarks.measure import row, timed, write_rows
from benchmarks.setup_peers import NotInstalled, cache_folder
from benchmarks.startup_versions import Failed, Version

PARTS = ("help", "dry-run", "run", "quickstart", "programs")
SHORT = 5
"""How many times as often what takes a second or two is started."""
METHODS = ("fedavg", "ifca", "ditto")


class Start(NamedTuple):
    """What a command is measured as."""

    workload: str
    words: tuple[str, ...]
    second: bool = False
    """With the cache of the start before it."""


def starts(parts: list[str], quickstart: tuple[str, ...] = (), run: tuple[str, ...] = ()) -> list[Start]:
    """The starts of a repetition, in their order. {out} stands for a new folder. `quickstart`, `run`: more words for these."""
    sweep = ("cfljax.sweep", "--out", "{out}", *quickstart)
    found: list[Start] = []
    if "help" in parts:
        found += [Start("help", ("cfljax.sweep", "--help"))] * SHORT
    if "dry-run" in parts:
        found += [Start("dry-run", ("cfljax.sweep", "--dry-run"), second=k > 0) for k in range(SHORT)]
    if "run" in parts:
        one = ("cfljax.run", "fedavg", *run)
        found += [Start("run, first start", one), Start("run, second start", one, second=True)]
    if "quickstart" in parts:
        found += [Start("quickstart, first start", sweep), Start("quickstart, second start", sweep, second=True)]
    return found


class Runs:
    """Starts of the versions by turns, in a folder of this measurement."""

    def __init__(self, versions: list[Version], folder: Path):
        self.versions, self.folder = versions, folder
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.compiling: dict[tuple[str, str], list[float]] = {}
        self._number = 0
        for version in versions:
            version.imports(self.place("cache"), folder)

    def place(self, name: str) -> Path:
        """A new folder."""
        self._number += 1
        found = self.folder / f"{name}-{self._number}"
        found.mkdir()
        return found

    def start(self, version: Version, words: tuple[str, ...], cache: Path, **more: str) -> tuple[float, str]:
        """(seconds from start to end, standard error) of a command."""
        out = str(self.place("out"))
        begin = time.perf_counter()
        log = version.start([word.format(out=out) for word in words], cache, self.folder, more)
        return time.perf_counter() - begin, log

    def repetition(self, number: int, todo: list[Start]) -> None:
        """Each start once by each version; who is first changes from one repetition to the next."""
        turn = self.versions[:: 1 if number % 2 == 0 else -1]
        caches: dict[str, Path] = {}
        for start in todo:
            for version in turn:
                if not start.second:
                    caches[version.name] = self.place("cache")
                seconds, log = self.start(version, start.words, caches[version.name], **programs.LOGGED)
                key = (start.workload, version.name)
                self.seconds.setdefault(key, []).append(seconds)
                self.compiling.setdefault(key, []).append(sum(s for _, s in programs.compile_seconds(log)))

    def rows(self, about: dict[str, Any]) -> list[dict[str, Any]]:
        """A row per command and version."""
        found = []
        for (workload, name), seconds in self.seconds.items():
            version = next(v for v in self.versions if v.name == name)
            more: dict[str, Any] = about | version.about
            ours = self.seconds[workload, self.versions[0].name]
            more["ratio"] = statistics.median(ours) / statistics.median(self.seconds[workload, self.versions[-1].name])
            found.append(timed(workload, name, seconds, more, compile_s=statistics.median(self.compiling[workload, name])))
        return found


def programs_of(runs: Runs, methods: list[str], more: tuple[str, ...], about: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per method and version: the programs of one run of it, their seconds of compiling and their kernels."""
    found = []
    for method in methods:
        for version in runs.versions:
            words = ("cfljax.run", method, "--quiet", *more)
            _, log = runs.start(version, words, runs.place("cache"), **programs.LOGGED)
            compiled = programs.compile_seconds(log)
            dump = runs.place("dump")
            runs.start(version, words, runs.place("cache"), **programs.dumping(dump))
            dumped = programs.dumped(dump)
            details = {
                "programs": len(dumped), "kernels": sum(number for _, number in dumped), "kernels_of": dumped,
                "compile_s_of": sorted(compiled, key=lambda one: -one[1]),
            }  # fmt: skip
            everything = about | version.about | details
            found.append(row(f"programs of {method}", version.name, everything, compile_s=sum(s for _, s in compiled)))
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as lines of text: medians, and this version's as a share of the other's."""
    lines = [f"{'':<28}{'this':>10}{'other':>10}{'ratio':>8}"]
    pairs: dict[str, list[dict[str, Any]]] = {}
    for one in rows:
        pairs.setdefault(one["workload"], []).append(one)
    for workload, (ours, other) in pairs.items():
        if ours["median_s"] is not None:
            lines.append(_line(f"{workload}, s", ours["median_s"], other["median_s"], ".2f"))
        if ours["compile_s"]:
            words = "  of it compiling, s" if ours["median_s"] else f"{workload}, s"
            lines.append(_line(words, ours["compile_s"], other["compile_s"], ".2f"))
        for key, words in (("kernels", "  kernels, all programs"), ("programs", "  programs")):
            if key in ours["about"]:
                lines.append(_line(words, ours["about"][key], other["about"][key], "d"))
        if "kernels_of" in ours["about"]:
            largest = [max(number for _, number in one["about"]["kernels_of"]) for one in (ours, other)]
            lines.append(_line("  kernels, largest program", *largest, "d"))
    return "\n".join(lines)


def _line(words: str, ours: float, other: float, form: str) -> str:
    ratio = f"{ours / other:.2f}" if other else "–"
    return f"{words:<28}{ours:>10{form}}{other:>10{form}}{ratio:>8}"


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f'"{name}": not one of {", ".join(known)}')
        return text.split(",")

    return parse


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="684e9dc", metavar="COMMIT", help="the version to compare with (%(default)s)")
    parser.add_argument("--version", metavar="COMMIT", help="the version to measure (default: the checkout's files as they are)")
    parser.add_argument("--only", type=_names(PARTS), default=list(PARTS), help=f"comma-separated: {', '.join(PARTS)} (all)")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS), help="whose programs are counted")
    parser.add_argument("--repeat", type=int, default=3, help="starts of each kind; of short ones five times as many (%(default)s)")
    parser.add_argument("--small", action="store_true", help="one method, few rounds: to see whether this command works")
    parser.add_argument("--environments", type=Path, default=cache_folder(), help="folder of the environments (%(default)s)")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    few = ("--set", "train.rounds=3") if given.small else ()
    begin = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="cfljax-startup-") as folder:
            versions = startup_versions.installed(given.version, given.against, given.environments)
            print(f"installed in {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
            runs = Runs(versions, Path(folder))
            todo = starts(given.only, (*few, "--set", "method=fedavg", "--no-report") if given.small else (), few)
            for number in range(given.repeat):
                runs.repetition(number, todo)
            about = machine.describe() | {"repeat": given.repeat, "processors": os.cpu_count()}
            rows = runs.rows(about)
            if "programs" in given.only:
                rows += programs_of(runs, given.methods, few, about)
    except (Failed, NotInstalled) as error:
        print(f"startup: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    write_rows(rows, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
