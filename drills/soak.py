"""Figure 20: many runs in one process."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "soak",
    "20",
    "retraces; 500 runs in one process",
    "one compile per shape; memory growth under 1 %, no file left open",
    500,
)
WARM = 0.4
"""The share of the runs after which memory is measured for the first time: caches fill at first."""
GROWTH = 0.01
LOOKS = 10
SWEEP = 8
"""Rounds of a run; each look is a sweep of its own, of two methods and two learning rates."""


def drill(tally: Tally, count: int, seed: int) -> None:
    """Many short runs, new seeds in each sweep."""
    seeds = max(1, -(-count // (4 * LOOKS)))
    sweeps(tally, seed, seeds, [f"train.rounds={SWEEP}"])


def sweeps(
    tally: Tally, seed: int, seeds: int, sets: list[str], each: int = 1, per: str = "run"
) -> None:
    """Sweeps in one process, through the launcher; memory, objects and open files after each. A run
    counts as `each` trials (`per` says of what); the slope of memory over them is that of a
    straight line by least squares."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from cfljax.config import read_spec
    from cfljax.devices import compiled
    from cfljax.files import use_compilation_cache
    from cfljax.launch.sweep import SweepOptions, carry_out
    from cfljax.store import Store

    with common.workplace() as place:
        os.environ["CFLJAX_CACHE"] = str(common.CACHE)
        use_compilation_cache()
        seen, programs = [], []
        for look in range(LOOKS):
            first = seed + look * seeds
            own = [f"seeds={first}:{first + seeds}", "train.lr=[0.05, 0.1]", *sets]
            outcome = carry_out(
                read_spec(place / "spec.toml", own), Store(place / "r"), SweepOptions(quiet=True)
            )
            shutil.rmtree(place / "r")
            if outcome.failed or outcome.diverged:
                tally.check(f"{outcome.failed} failed, {outcome.diverged} diverged")
            tally.tried += each * outcome.computed
            gc.collect()
            seen.append((tally.tried, memory(), len(gc.get_objects()), descriptors()))
            programs.append(compiled.compilations)
        tally.check(_grown(tally, seen, programs, per))


def _grown(
    tally: Tally, seen: list[tuple[int, int, int, int]], programs: list[int], per: str
) -> list[str]:
    done, held, objects, files = np.array(seen[int(WARM * LOOKS) :]).T
    growth = held[1:].max() / held[0] - 1
    tally.most("growth of memory", growth)
    tally.most(f"bytes of memory per {per}", np.polyfit(done, held, 1)[0])
    tally.most(f"Python objects per {per}", np.polyfit(done, objects, 1)[0])
    tally.facts |= {"memory in bytes": [m for _, m, _, _ in seen], "programs": programs[-1]}
    problems = [f"memory grew by {growth:.2%}"] if growth > GROWTH else []
    problems += [f"{files[-1] - files[0]} more files open"] if files[-1] > files[0] else []
    later = programs[-1] - programs[0]
    return problems + ([f"{later} programs compiled after the first sweep"] if later else [])


def memory() -> int:
    """Bytes that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    """Open files."""
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
