"""Figure 3: two and four processes on one results folder, some of them killed."""

from __future__ import annotations

import collections
import random
import shutil
import sys
import time
from pathlib import Path

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "processes",
    "3",
    "two and four processes on one results folder, some killed",
    "each unit once, equal to one process; nobody waits for a dead owner",
    20,
)
FLAGS = (
    "--workers",
    "1",
    "--set",
    "train.rounds=200",
    "--set",
    "train.eval_every=2",
    "--set",
    "seeds=0:4",
)
PATIENCE = 10.0
"""Seconds beyond what one process alone takes that the last living process may need."""


def drill(tally: Tally, count: int, seed: int) -> None:
    """Groups of processes; in two of three, some are killed, never all."""
    draw, clock = random.Random(seed), common.Clock()
    with common.workplace() as place:
        alone, wanted = common.uninterrupted(place, "whole", *FLAGS)
        for number in tally.trials(count):
            tally.check(_one(tally, place, number, draw, alone, wanted, clock))


def _one(
    tally: Tally,
    place: Path,
    number: int,
    draw: random.Random,
    alone: float,
    wanted: dict,
    clock: common.Clock,
) -> list[str]:
    folder, members = place / f"shared{number}", 2 + 2 * (number % 2)
    group = [common.start(place, folder, *FLAGS) for _ in range(members)]
    killed = group[: draw.randint(1, members - 1)] if number % 3 else []
    tally.count("processes", members)
    tally.count("killed", len(killed))
    for process in killed:
        time.sleep(draw.uniform(0.3, 1.0) * alone / len(killed))
        common.kill(process)
    begin = clock.seconds
    living = [process for process in group if process not in killed]
    problems = []
    for process in living:
        try:
            _, errors = process.communicate(timeout=members * alone + 300)
        except Exception:
            common.kill(process)
            problems.append("a process waited too long")
            continue
        problems += (
            []
            if process.returncode == 0
            else [f"ended with {process.returncode}: {errors.strip()[-300:]}"]
        )
    spent = clock.seconds - begin
    tally.most("seconds from the last kill to the end, over one process alone", spent / alone)
    if spent > members * alone + PATIENCE:
        problems.append(f"{spent:.1f} s after the last kill; one process alone takes {alone:.1f} s")
    problems += common.differences(wanted, common.contents(folder)) + common.leftovers(folder)
    problems += _twice(folder, {process.pid for process in killed})
    shutil.rmtree(folder)
    return [f"group {number} of {members}, {len(killed)} killed: {p}" for p in problems]


def _twice(folder: Path, dead: set[int]) -> list[str]:
    """Batches that a living process has begun although another living one did, or that were done
    twice."""
    events = common.events(folder)
    begun = collections.Counter(
        e["batch"] for e in events if e["event"] == "begin" and e["pid"] not in dead
    )
    done = collections.Counter(e["batch"] for e in events if e["event"] == "done")
    return [f"batch {b} was begun {n} times" for b, n in begun.items() if n > 1] + [
        f"batch {b} was done {n} times" for b, n in done.items() if n > 1
    ]


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
