"""What is still to be run, most claims per hour first: a list, or a program that fills idle cores
with it for days.

    python experiments/todo.py       # the list: how long on two cores, and on a chip
    # run what takes at most 3 hours, while cores are idle
    CFLJAX_DATA=FOLDER python experiments/todo.py --run --most 3
    # the same on an accelerator, CNNs first; records lie in FILE's folder .evidence
    python -m benchmarks.accelerator --only evidence --data FOLDER --seconds 3600 --json FILE

Jobs stand in todo.toml. Each is a sweep into results/todo/NAME, at the lowest priority; stopped at
any time, it goes on where it was when the program is started again. A job that is done becomes a
record (records/NAME); the command in README.md then makes the pages again. A job takes what its
runs took in the records, by their number of rounds; where there are none, what todo.toml says."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.results.result import Results
from cfljax.store import counts

HERE = Path(__file__).parent
RECORDS, PLACE = HERE / "records", HERE.parent / "results" / "todo"
Hours = dict[str, float]
WAIT = 60
"""Seconds between two looks at whether a core is idle."""


class Job(NamedTuple):
    """A sweep that is to be run."""

    name: str
    spec: Path
    sets: list[str]
    value: float
    """The claims that it decides."""
    hours: float
    """On two cores; NaN if nobody knows."""
    cnn: bool
    runs: int

    @property
    def worth(self) -> float:
        """Claims per hour."""
        return 0.0 if math.isnan(self.hours) else self.value / max(self.hours, 1 / 60)

    def minutes_on(self, chip: dict[str, object]) -> float:
        """Minutes on a chip, which is no faster than two cores without convolutions; at least one,
        for compiling."""
        return max(60 * self.hours / (float(str(chip["cnn"])) if self.cnn else 1.0), 1.0)

    def state(self) -> str:
        """`done`, `3 of 9 runs`, or "" if it has not begun."""
        if (RECORDS / self.name).is_dir():
            return "done"
        done = (
            counts(PLACE / self.name)["done"] if (PLACE / self.name / "plan.json").is_file() else 0
        )
        return f"{done} of {self.runs} runs" if done else ""


def seconds_known(records: Path = RECORDS) -> dict[tuple[object, ...], list[tuple[float, int]]]:
    """Map each kind of run to (seconds, rounds) of each such run of the records."""
    known: dict[tuple[object, ...], list[tuple[float, int]]] = {}
    for folder in sorted(path for path in records.iterdir() if path.is_dir()):
        for row in Results(folder).rows:
            spent = sum(row["timings"].values())
            known.setdefault(_kind(row["method"], row["config"]), []).append(
                (spent, row["config"]["train"]["rounds"])
            )
    return known


def _kind(method: str, config: dict[str, dict[str, object]]) -> tuple[object, ...]:
    """Return what is equal for runs that take equally long for the same number of rounds."""
    data, model, train = config["data"], config["model"], config["train"]
    work = (train.get("steps"), train.get("epochs"), train.get("batch"), train.get("participation"))
    size = (model["name"], model.get("hidden"), model.get("channels"), model.get("dense"))
    return (
        method,
        data["name"],
        data["partition"],
        data.get("clients"),
        *map(str, size),
        *map(str, work),
    )


def jobs(
    file: Path = HERE / "todo.toml", records: Path = RECORDS
) -> tuple[list[Job], dict[str, object]]:
    """List the jobs, most claims per hour first, and what todo.toml says of a chip."""
    table, known, found = tomllib.loads(file.read_text()), seconds_known(records), []
    for job in table["job"]:
        path, sets = file.parent / job["spec"], job.get("set", [])
        runs = read_spec(path, sets).runs()
        each = [
            _seconds(known.get(_kind(run.method, run.resolved())), run.train.rounds) for run in runs
        ]
        hours = job.get("hours", sum(each) / 3600)
        found.append(
            Job(job["name"], path, sets, job["value"], hours, job.get("cnn", False), len(runs))
        )
    return sorted(found, key=lambda job: -job.worth), table["chip"]


def _seconds(known: list[tuple[float, int]] | None, rounds: int) -> float:
    return (
        math.nan
        if not known
        else rounds * sum(spent for spent, _ in known) / sum(ran for _, ran in known)
    )


def listed(every: list[Job], chip: dict[str, object]) -> str:
    """Format the list as a table in Markdown, with what is done last."""
    lines = [
        f"| job | claims | two cores | claims an hour | {chip['name']}, predicted | state |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for job in sorted(every, key=lambda job: job.state() == "done"):
        there = time_of(job.hours / float(str(chip["cnn"]))) if job.cnn else "–"
        cells = (
            job.name,
            f"{job.value:g}",
            time_of(job.hours),
            f"{job.worth:.2g}",
            there,
            job.state(),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def hours_left(names: Iterable[str]) -> Hours:
    """Name of a job -> its hours, of the jobs among these that are not done."""
    wanted = {job.name: job for job in jobs()[0] if job.name in names} if any(names) else {}
    if missing := sorted(set(names) - set(wanted) - {""}):
        raise SpecError(f"{missing[0]}: there is no such job in todo.toml")
    return {name: job.hours for name, job in wanted.items() if not (RECORDS / name).is_dir()}


def time_of(hours: float) -> str:
    """Minutes, hours or days in words."""
    if math.isnan(hours):
        return "unknown"
    return (
        f"{max(60 * hours, 1):.0f} min"
        if hours < 2
        else f"{hours:.2g} h"
        if hours < 48
        else f"{hours / 24:.0f} days"
    )


def next_job(every: list[Job], most: float) -> Job | None:
    """Return the first job that is not done, has a known time, and takes at most that many
    hours."""
    return next((job for job in every if job.hours <= most and job.state() != "done"), None)


def order_for_card(every: list[Job], chip: dict[str, object]) -> list[Job]:
    """Return the jobs whose time is known, CNNs first, then most claims per minute of the chip."""
    known = [job for job in every if not math.isnan(job.hours)]
    return sorted(known, key=lambda job: (not job.cnn, -job.value / job.minutes_on(chip)))


def command(job: Job, out: Path | None = None) -> list[str]:
    """Return the sweep of a job into a folder; None: its folder in results/todo."""
    sets = [word for flag in job.sets for word in ("--set", flag)]
    return [
        sys.executable,
        "-m",
        "cfljax.sweep",
        str(job.spec),
        *sets,
        "--out",
        str(PLACE / job.name if out is None else out),
    ]


def export(out: Path, record: Path) -> list[str]:
    """Return the command that makes a record of a sweep that is done."""
    return [sys.executable, "-m", "cfljax.load", str(out), "--export", str(record)]


def idle() -> bool:
    """Whether a core has had nothing to do for the last minute."""
    return os.getloadavg()[0] <= (os.cpu_count() or 1) - 1


def run(most: float) -> int:
    """Run the jobs, one at a time; the number of those that did not end well."""
    bad: set[str] = set()
    while (job := next_job([job for job in jobs()[0] if job.name not in bad], most)) is not None:
        while not idle():
            time.sleep(WAIT)
        print(f"{job.name}: begun, {time_of(job.hours)}", flush=True)
        ended = subprocess.run(["nice", "-n", "19", *command(job)], check=False).returncode
        if ended == 0:
            ended = subprocess.run(
                export(PLACE / job.name, RECORDS / job.name), check=False
            ).returncode
        print(
            f"{job.name}: "
            f"{'done' if ended == 0 else f'ended with {ended}; it goes on with the next start'}",
            flush=True,
        )
        if ended:
            bad.add(job.name)
    return len(bad)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--run", action="store_true", help="run the jobs while cores are idle")
    flags.add_argument(
        "--most",
        type=float,
        default=math.inf,
        metavar="HOURS",
        help="leave out jobs that take longer on two cores",
    )
    given = flags.parse_args()
    if given.run:
        sys.exit(1 if run(given.most) else 0)
    print(listed(*jobs()))
